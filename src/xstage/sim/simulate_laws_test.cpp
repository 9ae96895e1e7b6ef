#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "xstage/plan/random_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Laws that hold with everything on at once: tiles in flight, coupled workers, pulls, copies, late and slow ranks.

namespace xs {
namespace {

struct Case {
  std::string what;
  Schedule schedule;
  SimMachine machine;
  SimOptions options;
};

Case random_case(std::uint64_t seed) {
  Dice dice(seed);
  PortParams port;
  port.burst_overhead = {dice.between(0, 200)};
  port.free_issue = {dice.between(1, 64)};
  port.drain = {dice.over_decades(1, 400)};
  port.capacity = {dice.over_decades(64, 20000)};
  port.worker_capacity = {dice.over_decades(64, 20000)};
  port.disorder = dice.between(0, 3);
  port.visible_latency = {dice.between(0, 1000)};
  port.group_fairness = dice.between(0, 1);
  port.spread = dice.between(0, 0.5);
  port.groups = {0, 0, 1, 2, 0, 1};
  SimMachine machine{{1.75}, {dice.over_decades(1, 4096)}, {dice.over_decades(1, 100)}, port};
  machine.copy_engine = port;
  machine.own_raise = max(Nanos{0}, Nanos{dice.between(-500, 1000)});
  machine.task_overhead = {dice.between(0, 500)};
  machine.counter_claim = {dice.between(0, 500)};
  auto random = random_problem(seed);
  auto schedule = random.problem.schedule(random_order(seed));
  SimOptions options{dice.whole(1, 7), chance(dice, 0.5) ? Claim::fixed : Claim::counter, true};
  options.tiles_in_flight = dice.whole(1, 3);
  for (auto& rank : schedule.ranks) {
    options.ranks.push_back({{dice.between(0, 2000)}, dice.between(0.5, 1.5)});
    for (Work& work : rank.work) work.route = static_cast<Route>(dice.whole(0, 2));
  }
  return {random.what, std::move(schedule), machine, options};
}

template <class Body>
void for_random_cases(Body&& body) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto one = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, one.what));
    body(one, simulate(one.schedule, one.machine, one.options));
    if (testing::Test::HasFailure()) return;
  }
}

void expect_same_times(const Timeline& a, const Timeline& b) {
  EXPECT_EQ(a.makespan, b.makespan);
  EXPECT_EQ(a.totals, b.totals);
  EXPECT_EQ(a.link_busy, b.link_busy);
  EXPECT_EQ(a.link_hidden, b.link_hidden);
}

TEST(SimulateLaws, TheSameInputGivesTheSameTimeline) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    const auto again = simulate(one.schedule, one.machine, one.options);
    expect_same_times(again, timeline);
    const auto same = [](const Span& a, const Span& b) {
      return a.rank == b.rank && a.worker == b.worker && a.kind == b.kind && a.task == b.task && a.claim == b.claim &&
             a.begin == b.begin && a.end == b.end;
    };
    EXPECT_TRUE(std::ranges::equal(again.spans, timeline.spans, same));
  });
}

TEST(SimulateLaws, TotalsAreTheSumsOfTheSpansAndTheSameWithoutThem) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    Timeline summed = timeline;
    summed.totals.clear();
    const auto told = breakdown_by_rank(timeline), expected = breakdown_by_rank(summed);
    ASSERT_EQ(told.size(), one.schedule.ranks.size());
    for (std::size_t rank = 0; rank < told.size(); ++rank) {
      for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) {
        EXPECT_NEAR(told[rank].share[kind], expected[rank].share[kind], 1e-12);
      }
    }
    SimOptions unseen = one.options;
    unseen.record_spans = unseen.record_levels = false;
    const auto bare = simulate(one.schedule, one.machine, unseen);
    EXPECT_TRUE(bare.spans.empty());
    EXPECT_TRUE(bare.levels.empty());
    expect_same_times(bare, timeline);
  });
}

TEST(SimulateLaws, WorkersFollowTheirSpansFromTheStartOfTheirRank) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    std::map<std::pair<int, int>, Nanos> since;
    for (const Span& span : timeline.spans) {
      const Nanos start = one.options.ranks[static_cast<std::size_t>(span.rank)].start;
      Nanos& end = since.try_emplace({span.rank, span.worker}, start).first->second;
      EXPECT_EQ(span.begin, end);
      EXPECT_GT(span.end, span.begin);
      EXPECT_LE(span.end, timeline.makespan);
      end = span.end;
    }
  });
}

TEST(SimulateLaws, ALinkIsBusyForAllThatLeavesItsRank) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    std::vector<double> bytes(one.schedule.ranks.size());
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const auto& own = one.schedule.ranks[rank];
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        for (const Send& send : own.sends[claim]) {
          const auto peer = static_cast<std::size_t>(send.rank);
          if (peer != rank)
            bytes[own.work[claim].route == Route::pull ? peer : rank] += static_cast<double>(send.bytes);
        }
      }
    }
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const double drained = bytes[rank] / one.machine.port.drain.value;
      EXPECT_NEAR(timeline.link_busy[rank].value, drained, 1e-9 * drained);
      EXPECT_LE(timeline.link_hidden[rank], timeline.link_busy[rank] * (1 + 1e-9));
    }
  });
}

TEST(SimulateLaws, SharesOfTheRanksAverageToThoseOfAll) {
  for_random_cases([](const Case&, const Timeline& timeline) {
    const auto all = breakdown(timeline);
    Breakdown mean;
    double busy_hidden = 0;
    const auto ranks = breakdown_by_rank(timeline);
    for (const Breakdown& rank : ranks) {
      EXPECT_NEAR(std::accumulate(rank.share.begin(), rank.share.end(), rank.tail), 1, 1e-9);
      for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) mean.share[kind] += rank.share[kind];
      mean.tail += rank.tail;
      mean.link_busy += rank.link_busy;
      busy_hidden += rank.link_busy * rank.overlap_ratio;
    }
    const auto count = static_cast<double>(ranks.size());
    for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind)
      EXPECT_NEAR(all.share[kind], mean.share[kind] / count, 1e-12);
    EXPECT_NEAR(all.tail, mean.tail / count, 1e-12);
    EXPECT_NEAR(all.link_busy, mean.link_busy / count, 1e-12);
    EXPECT_NEAR(all.link_busy * all.overlap_ratio, busy_hidden / count, 1e-12);
  });
}

}  // namespace
}  // namespace xs
