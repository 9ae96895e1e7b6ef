#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/model/port.hpp"

// The closed forms of docs/model.md: free, first, sustained and paced bursts.

namespace xs {
namespace {

constexpr GigaHertz kClock{2};

PortParams example_port() {
  PortParams params;
  params.workers = 100;
  params.free_issue = {20};       // a worker's: 40 bytes/ns
  params.drain = {400};           // 4 bytes/ns for each of 100 workers
  params.capacity = {3'000'000};  // 30000 bytes each
  params.burst_overhead = {100};
  params.visible_latency = {700};
  return params;
}

BurstPattern pattern(double bytes, double gap, int bursts = 32, Completion await = Completion::issued) {
  return {100, {bytes}, {gap}, bursts, await};
}

BurstPrediction predict(const BurstPattern& wanted) { return xs::predict(example_port(), kClock, wanted); }

double free_cycles(double bytes) { return 100 + bytes / 20; }

TEST(Predict, BurstsThatFitAreFree) {
  // 20000 bytes drain in 5000 ns, so a gap of 10000 cycles empties the stage.
  const auto result = predict(pattern(20000, 10000));
  for (const Cycles cycles : {result.free, result.mean_issue, result.first_issue, result.last_issue}) {
    EXPECT_NEAR(cycles.value, free_cycles(20000), 1e-6);
  }
}

TEST(Predict, FirstBurstBeyondCapacityWaitsForWhatExceedsIt) {
  for (const double bytes : {40000.0, 65536.0, 262144.0}) {
    const auto result = predict(pattern(bytes, 0, 1));
    EXPECT_NEAR(result.first_issue.value, 100 + 2 * (bytes - 30000) / 4, 1e-6);
    EXPECT_NEAR(result.free.value, free_cycles(bytes), 1e-6);
    EXPECT_EQ(result.mean_issue, result.first_issue);
  }
}

TEST(Predict, SustainedBurstsTakeTheirBytesOverTheDrainLessTheGap) {
  // As long as the gap does not empty the stage, which takes 15000 cycles here.
  for (const double gap : {0.0, 1000.0, 14000.0}) {
    const auto result = predict(pattern(65536, gap, 64));
    EXPECT_NEAR(result.last_issue.value, 2 * 65536 / 4.0 - gap, 1e-6);
  }
  // A gap beyond that makes it free again.
  EXPECT_NEAR(predict(pattern(20000, 2 * 20000 / 4.0 - free_cycles(20000), 64)).last_issue.value, free_cycles(20000),
              1);
}

TEST(Predict, MeanIsThatOfAllBursts) {
  const auto two = predict(pattern(65536, 0, 2));
  EXPECT_NEAR(two.mean_issue.value, (two.first_issue.value + two.last_issue.value) / 2, 1e-6);
}

TEST(Predict, VisibleAfterWhatIsOutstandingHasDrainedPlusLatency) {
  EXPECT_NEAR(predict(pattern(65536, 0)).visible_after_last.value, 30000 / 4.0 + 700, 1e-6);
  // One burst that fits: what did not drain while it issued.
  EXPECT_NEAR(predict(pattern(20000, 0, 1)).visible_after_last.value, 20000 / 4.0 - 20000 / 40.0 + 700, 1e-6);
}

TEST(Predict, AwaitedCompletionLeavesAnEmptyStage) {
  for (const auto await : {Completion::source_free, Completion::remote_visible}) {
    for (const double bytes : {20000.0, 65536.0}) {
      const auto result = predict(pattern(bytes, 0, 10, await));
      EXPECT_NEAR(result.first_issue.value, result.last_issue.value, 1e-6);
      EXPECT_NEAR(result.mean_issue.value, result.first_issue.value, 1e-6);
    }
  }
}

TEST(Predict, MoreBytesOrWorkersNeverHelpAndGapsNeverHurt) {
  Dice dice(1);
  for (int trial = 0; trial < 300; ++trial) {
    const BurstPattern base{dice.whole(1, 200), {dice.over_decades(1000, 300000)}, {dice.over_decades(10, 100000)}, 16};
    auto more_bytes = base, more_workers = base, longer_gap = base;
    more_bytes.bytes = base.bytes * 1.5;
    more_workers.workers += 10;
    longer_gap.gap = base.gap * 1.5;
    const double issue = predict(base).mean_issue.value;
    EXPECT_GE(predict(more_bytes).mean_issue.value, issue);
    EXPECT_GE(predict(more_workers).mean_issue.value, issue * (1 - 1e-12));
    EXPECT_LE(predict(longer_gap).mean_issue.value, issue * (1 + 1e-12));
  }
}

TEST(PortParams, SharesAddUpToThePort) {
  const auto port = example_port();
  const auto share = port.share(7);
  EXPECT_DOUBLE_EQ(7 * share.drain.value, port.drain.value);
  EXPECT_DOUBLE_EQ(7 * share.capacity.value, port.capacity.value);
  EXPECT_EQ(share.free_issue, port.free_issue);
  EXPECT_EQ(share.visible_latency, port.visible_latency);
}

}  // namespace
}  // namespace xs
