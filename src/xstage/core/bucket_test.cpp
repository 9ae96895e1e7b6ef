#include "xstage/core/bucket.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

BucketRates random_rates(Dice& dice) {
  return {{dice.over_decades(5, 80)}, {dice.over_decades(0.5, 100)}, {dice.over_decades(500, 50000)}};
}

// Half of them hold nothing yet.
Bucket random_bucket(Dice& dice, const BucketRates& rates) {
  Bucket bucket;
  if (dice.whole(0, 1) == 1) bucket.outstanding = rates.capacity * dice.between(0, 1);
  return bucket;
}

bool stalls(const Bucket& bucket, const BucketRates& rates, Bytes bytes) {
  const Nanos free_time = bytes / rates.free_issue;
  return bucket.outstanding + bytes - rates.drain * free_time > rates.capacity && rates.free_issue > rates.drain;
}

TEST(Bucket, BurstThatFitsCostsItsFreeIssueTimeOnly) {
  Dice dice(1);
  int fitting = 0, stalled = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto rates = random_rates(dice);
    auto bucket = random_bucket(dice, rates);
    const Bytes bytes{dice.over_decades(10, 100000)};
    const bool expect_stall = stalls(bucket, rates, bytes);
    const Nanos time = bucket.issue(rates, bytes), free_time = bytes / rates.free_issue;
    (expect_stall ? stalled : fitting)++;
    if (expect_stall) {
      EXPECT_GT(time, free_time);
    } else {
      EXPECT_EQ(time, free_time);
    }
  }
  // Both cases were met.
  EXPECT_GT(fitting, 300);
  EXPECT_GT(stalled, 300);
}

TEST(Bucket, BytesAreConserved) {
  Dice dice(2);
  for (int trial = 0; trial < 300; ++trial) {
    const auto rates = random_rates(dice);
    Bucket bucket;
    for (int burst = 0; burst < 50; ++burst) {
      const Bytes before = bucket.outstanding, bytes{dice.over_decades(10, 100000)};
      const Nanos time = bucket.issue(rates, bytes);
      // The link never rests while bytes are there, and a faster issuer keeps it busy all the time.
      const Bytes drained =
          rates.free_issue > rates.drain ? rates.drain * time : min(before + bytes, rates.drain * time);
      EXPECT_NEAR(bytes.value, (drained + bucket.outstanding - before).value, 1e-9 * (before + bytes).value);
      EXPECT_GE(bucket.outstanding, Bytes{0});
      EXPECT_LE(bucket.outstanding, rates.capacity);

      const Bytes full = bucket.outstanding;
      const Nanos gap{dice.between(0, 500)};
      bucket.pass(rates, gap);
      EXPECT_NEAR((full - bucket.outstanding).value, min(full, rates.drain * gap).value, 1e-9 * full.value);
    }
  }
}

TEST(Bucket, MoreBytesNeverTakeLessTime) {
  Dice dice(3);
  for (int trial = 0; trial < 500; ++trial) {
    const auto rates = random_rates(dice);
    const auto start = random_bucket(dice, rates);
    Nanos last{0};
    for (double bytes = 1; bytes < 1e6; bytes *= 1.3) {
      auto bucket = start;
      const Nanos time = bucket.issue(rates, {bytes});
      EXPECT_GT(time, last);
      last = time;
    }
  }
}

TEST(Bucket, LongerGapNeverMakesTheNextBurstSlower) {
  Dice dice(4);
  for (int trial = 0; trial < 500; ++trial) {
    const auto rates = random_rates(dice);
    const Bytes bytes{dice.over_decades(10, 100000)};
    Nanos last{HUGE_VAL};
    for (double gap = 0.1; gap < 1e6; gap *= 1.5) {
      Bucket bucket;
      bucket.issue(rates, bytes);
      bucket.pass(rates, {gap});
      const Nanos time = bucket.issue(rates, bytes);
      EXPECT_LE(time, last);
      last = time;
    }
  }
}

// The same fluid without closed forms: steps so small that a step's rates count as constant.
Nanos issue_in_small_steps(Bytes& outstanding, const BucketRates& rates, Bytes bytes, Nanos step) {
  Nanos time{0};
  for (Bytes left = bytes; left > Bytes{0}; time += step) {
    const Bytes drained = min(rates.drain * step, outstanding + rates.free_issue * step);
    const Bytes room = rates.capacity - outstanding + drained;
    const Bytes entering = min(rates.free_issue * step, room);
    if (entering >= left) {
      outstanding = outstanding + left - rates.drain * (step * (left / entering));
      return time + step * (left / entering);
    }
    outstanding = outstanding + entering - drained;
    left -= entering;
  }
  return time;
}

TEST(Bucket, EqualsIntegrationInSmallSteps) {
  Dice dice(5);
  int stalled = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const auto rates = random_rates(dice);
    auto bucket = random_bucket(dice, rates);
    Bytes outstanding = bucket.outstanding;
    for (int burst = 0; burst < 4; ++burst) {
      const Bytes bytes{dice.over_decades(1000, 100000)};
      stalled += stalls(bucket, rates, bytes);
      const Nanos time = bucket.issue(rates, bytes);
      const Nanos step = time / 20000;
      EXPECT_NEAR(issue_in_small_steps(outstanding, rates, bytes, step).value, time.value, 1e-3 * time.value);
      outstanding = max(Bytes{0}, outstanding);
      EXPECT_NEAR(outstanding.value, bucket.outstanding.value, 1e-3 * (rates.capacity + bytes).value);
      const Nanos gap{dice.over_decades(1, 1000)};
      bucket.pass(rates, gap);
      outstanding = max(Bytes{0}, outstanding - rates.drain * gap);
    }
  }
  EXPECT_GT(stalled, 100);
}

TEST(Bucket, FirstBurstBeyondCapacityTakesWhatExceedsItOverTheDrain) {
  const BucketRates rates{{40}, {3}, {26000}};
  for (const double bytes : {30000.0, 65536.0, 1e6}) {
    Bucket bucket;
    EXPECT_NEAR(bucket.issue(rates, {bytes}).value, (bytes - 26000) / 3, 1e-9 * bytes);
    EXPECT_EQ(bucket.outstanding, rates.capacity);
  }
}

TEST(Bucket, SustainedBurstsTakeTheirBytesOverTheDrain) {
  const BucketRates rates{{40}, {3}, {26000}};
  Bucket bucket;
  bucket.issue(rates, {65536});
  for (int burst = 0; burst < 10; ++burst) EXPECT_DOUBLE_EQ(bucket.issue(rates, {65536}).value, 65536.0 / 3);
  // With a gap, what drained meanwhile enters for free.
  bucket.pass(rates, {1000});
  EXPECT_NEAR(bucket.issue(rates, {65536}).value, 65536.0 / 3 - 1000, 1e-9 * 65536);
}

TEST(Bucket, GapOfBytesOverDrainRestoresAFreeIssue) {
  const BucketRates rates{{40}, {3}, {26000}};
  Bucket bucket;
  bucket.issue(rates, {20000});
  bucket.pass(rates, bucket.outstanding / rates.drain);
  EXPECT_EQ(bucket.outstanding, Bytes{0});
  EXPECT_EQ(bucket.issue(rates, {20000}), Bytes{20000} / rates.free_issue);
}

TEST(Bucket, IsArithmeticThatACompilerCanDo) {
  constexpr auto time = [] {
    Bucket bucket;
    bucket.issue({{2}, {1}, {100}}, {150});  // fills after 100 ns and 200 bytes: this one fits
    return bucket.issue({{2}, {1}, {100}}, {200});
  }();
  // 75 bytes were outstanding: 25 ns and 50 bytes until full, the other 150 at the drain's rate.
  static_assert(time == Nanos{175});
}

}  // namespace
}  // namespace xs
