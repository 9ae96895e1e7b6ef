#include <gtest/gtest.h>

#include <cmath>

#include "xstage/core/bucket.hpp"
#include "xstage/core/test_support.hpp"
#include "xstage/model/port.hpp"

// The closed forms of docs/model.md: free, first, sustained and paced bursts.

namespace xs {
namespace {

constexpr GigaHertz kClock{2};

PortParams example_port() {
  PortParams params;
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

TEST(Predict, AwaitedVisibilityLeavesAnEmptyStage) {
  for (const double bytes : {20000.0, 65536.0}) {
    const auto result = predict(pattern(bytes, 0, 10, Completion::remote_visible));
    EXPECT_NEAR(result.first_issue.value, result.last_issue.value, 1e-6);
    EXPECT_NEAR(result.mean_issue.value, result.first_issue.value, 1e-6);
    EXPECT_NEAR((result.mean_done / kClock).value, result.visible_after_last.value, 1e-6);
  }
}

TEST(Predict, SourceOfAStoreIsFreeWhenItHasIssued) {
  const auto issued = predict(pattern(65536, 0, 10)), free = predict(pattern(65536, 0, 10, Completion::source_free));
  EXPECT_EQ(free.mean_issue, issued.mean_issue);
  EXPECT_NEAR(free.mean_done.value, 0, 1e-6);
}

TEST(Predict, EqualServiceIsOneBucketOnItsShare) {
  Dice dice(1);
  const auto port = example_port();
  for (int trial = 0; trial < 300; ++trial) {
    const BurstPattern wanted{
        dice.whole(1, 200), {dice.over_decades(1000, 300000)}, {dice.over_decades(10, 100000)}, 16};
    const BucketRates rates{port.free_issue * kClock, port.drain / wanted.workers, port.capacity / wanted.workers};
    Bucket bucket;
    Nanos issue{0};
    for (int burst = 0; burst < wanted.bursts; ++burst) {
      bucket.pass(rates, port.burst_overhead / kClock);
      issue += port.burst_overhead / kClock + bucket.issue(rates, wanted.bytes);
      bucket.pass(rates, wanted.gap / kClock);
    }
    const double mean = (issue * kClock).value / wanted.bursts;
    EXPECT_NEAR(predict(wanted).mean_issue.value, mean, 1e-9 * mean);
  }
}

// Unequal service makes workers fall out of step, which a longer gap may do at a worse time: hence the allowance.
TEST(Predict, MoreBytesOrWorkersNeverHelpAndGapsNeverHurt) {
  auto unequal = example_port();
  unequal.spread = 0.35;
  unequal.disorder = 2.5;
  for (const auto& [port, allowance] : {std::pair{example_port(), 1e-9}, {unequal, 0.03}}) {
    Dice dice(1);
    for (int trial = 0; trial < 300; ++trial) {
      const BurstPattern base{
          dice.whole(1, 200), {dice.over_decades(1000, 300000)}, {dice.over_decades(10, 100000)}, 16};
      auto more_bytes = base, more_workers = base, longer_gap = base;
      more_bytes.bytes = base.bytes * 1.5;
      more_workers.workers += 10;
      longer_gap.gap = base.gap * 1.5;
      const auto issue = [&](const BurstPattern& wanted) { return xs::predict(port, kClock, wanted).mean_issue.value; };
      EXPECT_GE(issue(more_bytes), issue(base) * (1 - allowance));
      EXPECT_GE(issue(more_workers), issue(base) * (1 - allowance));
      EXPECT_LE(issue(longer_gap), issue(base) * (1 + allowance));
    }
  }
}

// 20 bytes/cycle fill the stage at 40 - 4 bytes/ns a worker: 30000 bytes are outstanding after 33333 stored.
TEST(Predict, OnsetOfAFirstBurstIsWhereItsStallIsATenth) {
  const Bytes onset = onset_bytes(example_port(), kClock, pattern(0, 0, 1));
  EXPECT_NEAR(predict(pattern(onset.value, 0, 1)).first_issue.value, 1.1 * free_cycles(onset.value),
              0.01 * free_cycles(onset.value));
  auto too_few = pattern(0, 0, 1);
  too_few.workers = 9;  // 360 bytes/ns never fill the link
  EXPECT_TRUE(std::isinf(onset_bytes(example_port(), kClock, too_few).value));
}

TEST(Predict, RecoveryIsTheGapThatDrainsABurst) {
  // A burst of 20000 bytes drains in 10000 cycles, and the stage holds what a tenth of its issue would bring in.
  const Cycles gap = recovery_gap(example_port(), kClock, pattern(20000, 0, 256));
  EXPECT_NEAR(gap.value, 2 * 20000 / 4.0 - free_cycles(20000), 200);
  EXPECT_EQ(recovery_gap(example_port(), kClock, pattern(1000, 0, 4)).value, 0);
  EXPECT_TRUE(std::isinf(recovery_gap(example_port(), kClock, pattern(200000, 0)).value));  // larger than the stage
}

TEST(Predict, AnOwnStageIssuesAtOnceAndReadsAtTheEnginesRate) {
  auto port = example_port();
  port.engine = {10};
  port.engine_capacity = {8000};
  // 6 workers of 20 bytes/ns do not fill the link.
  const BurstPattern small{6, {8000}, {5000}, 4, Completion::source_free};
  const auto fits = xs::predict(port, kClock, small);
  EXPECT_NEAR(fits.mean_issue.value, free_cycles(8000), 1e-6);
  EXPECT_NEAR(fits.mean_done.value, 8000 / 10.0 - 8000 / 20.0, 1e-6);
  BurstPattern large = small;
  large.bytes = {40000};
  EXPECT_NEAR(xs::predict(port, kClock, large).mean_issue.value, 100 + (40000 - 8000) / 10.0, 1e-6);
}

TEST(Predict, DisorderKeepsTheLastByteLongerWhileTheStageIsFull) {
  auto port = example_port();
  const auto in_order = xs::predict(port, kClock, pattern(65536, 0, 8, Completion::remote_visible));
  port.disorder = 2.5;
  const auto at_random = xs::predict(port, kClock, pattern(65536, 0, 8, Completion::remote_visible));
  // All workers stop together, so nothing comes in behind them: what is left shrinks to e^-2.5.
  EXPECT_NEAR(at_random.mean_done.value, 1400 + (in_order.mean_done.value - 1400) * (1 - std::exp(-2.5)), 1);
}

}  // namespace
}  // namespace xs
