#include "xstage/plan/timeline.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

constexpr Task kTask{TaskKind::linear2, 0, 0};

// One rank with one worker.
Timeline timeline(double makespan, std::vector<std::tuple<SpanKind, double, double>> spans, double link_busy) {
  Timeline made{1, 1, {makespan}, {}, {}, {{link_busy}}, {{0}}};
  for (const auto& [kind, begin, end] : spans) made.spans.push_back({0, 0, kind, kTask, 0, {begin}, {end}});
  return made;
}

double share(const Breakdown& result, SpanKind kind) { return result.share[static_cast<std::size_t>(kind)]; }

TEST(Breakdown, SharesAreTheSpansOverWorkersTimesMakespan) {
  Timeline made{2, 2, {100}, {}, {}, {{50}, {10}}, {{0}, {0}}};
  made.spans = {{0, 0, SpanKind::dependency, kTask, 0, {0}, {20}},
                {0, 0, SpanKind::operand_stall, kTask, 0, {20}, {30}},
                {0, 0, SpanKind::compute, kTask, 0, {30}, {90}},
                {0, 0, SpanKind::sender_stall, kTask, 0, {90}, {100}},
                {1, 1, SpanKind::compute, kTask, 0, {0}, {100}}};
  const auto result = breakdown(made);
  EXPECT_EQ(result.makespan, Nanos{100});
  EXPECT_DOUBLE_EQ(share(result, SpanKind::dependency), 0.05);
  EXPECT_DOUBLE_EQ(share(result, SpanKind::operand_stall), 0.025);
  EXPECT_DOUBLE_EQ(share(result, SpanKind::compute), 0.4);
  EXPECT_DOUBLE_EQ(share(result, SpanKind::sender_stall), 0.025);
  EXPECT_DOUBLE_EQ(result.tail, 0.5);
  EXPECT_DOUBLE_EQ(result.link_busy, 0.3);
}

TEST(Breakdown, SharesAndTailSumToOne) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Dice dice(seed);
    Timeline made{dice.whole(1, 3), dice.whole(1, 4), {0}, {}, {}, {}, {}};
    for (int rank = 0; rank < made.num_ranks; ++rank) {
      for (int worker = 0; worker < made.workers_per_rank; ++worker) {
        Nanos at{0};
        for (int i = dice.whole(0, 5); i > 0; --i) {
          const Nanos end = at + Nanos{static_cast<double>(dice.whole(1, 1000)) / 7};
          made.spans.push_back({rank, worker, static_cast<SpanKind>(dice.whole(0, 3)), kTask, 0, at, end});
          made.makespan = max(made.makespan, end);
          at = end;
        }
      }
    }
    made.makespan += Nanos{1};
    const auto result = breakdown(made);
    EXPECT_NEAR(std::accumulate(result.share.begin(), result.share.end(), result.tail), 1, 1e-12);
    EXPECT_GT(result.tail, 0);
  }
}

TEST(Breakdown, OverlapIsTheHiddenPartOfTheBusyTimeOfAllLinks) {
  Timeline made = timeline(100, {{SpanKind::compute, 0, 100}}, 40);
  made.link_hidden = {{40}};
  EXPECT_DOUBLE_EQ(breakdown(made).overlap_ratio, 1);
  made.link_hidden = {{0}};
  EXPECT_EQ(breakdown(made).overlap_ratio, 0);
  Timeline two{2, 1, {100}, {}, {}, {{60}, {20}}, {{10}, {10}}};
  EXPECT_DOUBLE_EQ(breakdown(two).overlap_ratio, 0.25);
}

TEST(Breakdown, WithoutALinkOrWithoutTimeThereIsNoOverlap) {
  Timeline host = timeline(100, {{SpanKind::compute, 0, 100}}, 0);
  EXPECT_EQ(breakdown(host).overlap_ratio, 0);
  host.link_busy.clear();  // nobody looked
  EXPECT_EQ(breakdown(host).overlap_ratio, 0);
  EXPECT_EQ(breakdown(host).link_busy, 0);
  EXPECT_EQ(breakdown(Timeline{}).tail, 0);
  EXPECT_EQ(breakdown(timeline(0, {}, 0)).overlap_ratio, 0);
}

}  // namespace
}  // namespace xs
