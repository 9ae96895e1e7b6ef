#include "xstage/probe/repeats.hpp"

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(Repeats, MedianAndIntervalOfKnownValues) {
  Repeats repeats;
  for (const double value : {5.0, 1.0, 4.0, 2.0, 3.0}) repeats.add(value);
  EXPECT_EQ(repeats.median(), 3);
  EXPECT_EQ(repeats.low(), 1);
  EXPECT_EQ(repeats.high(), 5);
  EXPECT_FALSE(repeats.settled(10));
  repeats.add(6);
  EXPECT_EQ(repeats.median(), 3.5);
  EXPECT_TRUE(repeats.settled(10));
  // Of 20 values the 6th and the 15th (the tables of the sign test).
  for (int value = 7; value <= 20; ++value) repeats.add(value);
  EXPECT_EQ(repeats.low(), 6);
  EXPECT_EQ(repeats.high(), 15);
}

// Exponential noise on top of 100, as a machine with other work adds it: one-sided, with a long tail.
TEST(Repeats, IntervalHoldsTheMedianOfKnownNoiseIn95Of100Cases) {
  const double truth = 100 + 5 * std::log(2);
  Dice dice(3);
  for (const int count : {6, 15, 40}) {
    int held = 0;
    constexpr int kTrials = 2000;
    for (int trial = 0; trial < kTrials; ++trial) {
      Repeats repeats;
      for (int i = 0; i < count; ++i) repeats.add(100 - 5 * std::log(1 - dice.between(0, 1)));
      held += repeats.low() <= truth && truth <= repeats.high() ? 1 : 0;
    }
    EXPECT_GE(held, 0.94 * kTrials) << count;
    EXPECT_LE(held, 0.99 * kTrials) << count;
  }
}

TEST(Repeats, SettleSoonerWithLessNoiseAndInSpiteOfDisturbedOnes) {
  const auto needed = [](double noise) {
    Dice dice(9);
    Repeats repeats;
    while (!repeats.settled(0.02)) {
      // One in ten is disturbed badly.
      repeats.add(dice.whole(1, 10) == 1 ? 5000 : 100 * (1 + noise * dice.between(-1, 1)));
      check(repeats.count() < 10000, "never settled");
    }
    EXPECT_NEAR(repeats.median(), 100, 5);
    return repeats.count();
  };
  EXPECT_LE(needed(0.002), 12);
  EXPECT_LT(needed(0.002), needed(0.05));
  EXPECT_LT(needed(0.05), needed(0.15));
}

}  // namespace
}  // namespace xs
