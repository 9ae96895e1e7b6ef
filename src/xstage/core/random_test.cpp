#include "xstage/core/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace xs {
namespace {

constexpr int kSamples = 100000;

template <class Draw>
std::array<double, 4> moments(Draw&& draw) {
  std::array<double, 4> sums{};
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    double power = 1;
    for (double& sum : sums) sum += power *= draw(i);
  }
  for (double& sum : sums) sum /= kSamples;
  return sums;
}

TEST(Random, MixIsSplitMix64) {
  // The published generator's first values from state 0.
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(mix64(2 * 0x9e3779b97f4a7c15u), 0x06c45d188009454fu);
}

TEST(Random, ValuesOfAKeyAreTheSameForEver) {
  // Output hashes that people have noted down depend on these.
  constexpr RandomKey key{1, 2};
  EXPECT_EQ(key.bits(3), 0xd0734750fde362b3u);
  EXPECT_EQ(key.uniform(3), 0.814259011529328);
  EXPECT_EQ(key.below(3, 1000), 814);
  EXPECT_DOUBLE_EQ(key.normal(3), 1.1931383653235457);
}

TEST(Random, SeedsStreamsAndIndicesGiveDistinctValues) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t stream = 0; stream < 20; ++stream) {
      for (std::uint64_t index = 0; index < 20; ++index) seen.insert(RandomKey{seed, stream}.bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 8000u);
}

TEST(Random, UniformFillsEveryBinAlike) {
  const RandomKey key{1, 2};
  std::array<int, 100> bins{};
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const double value = key.uniform(i);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++bins[static_cast<std::size_t>(value * 100)];
  }
  double chi_squared = 0;
  for (const int count : bins) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  // 99 degrees of freedom: mean 99, standard deviation 14. Too even would be wrong as well.
  EXPECT_LT(chi_squared, 99 + 4 * 14);
  EXPECT_GT(chi_squared, 99 - 4 * 14);
}

TEST(Random, UniformHasTheMomentsOfItsDistribution) {
  const auto m = moments([](auto i) { return RandomKey{3, 4}.uniform(i); });
  for (std::size_t power = 1; power <= m.size(); ++power)
    EXPECT_NEAR(m[power - 1], 1.0 / (power + 1.0), 0.005) << power;
}

TEST(Random, NormalHasTheMomentsOfItsDistribution) {
  const auto m = moments([](auto i) { return RandomKey{3, 4}.normal(i); });
  EXPECT_NEAR(m[0], 0, 0.02);
  EXPECT_NEAR(m[1], 1, 0.02);
  EXPECT_NEAR(m[2], 0, 0.05);
  EXPECT_NEAR(m[3], 3, 0.15);
}

TEST(Random, NeighboursAndStreamsAreNotCorrelated) {
  const RandomKey key{5, 6}, other_stream{5, 7}, other_seed{6, 6};
  const auto correlation = [&](auto&& partner) {
    double sum = 0;
    for (std::uint64_t i = 0; i < kSamples; ++i) sum += (key.uniform(i) - 0.5) * (partner(i) - 0.5);
    return sum / kSamples * 12;
  };
  EXPECT_NEAR(correlation([&](auto i) { return key.uniform(i + 1); }), 0, 0.02);
  EXPECT_NEAR(correlation([&](auto i) { return other_stream.uniform(i); }), 0, 0.02);
  EXPECT_NEAR(correlation([&](auto i) { return other_seed.uniform(i); }), 0, 0.02);
  EXPECT_NEAR(correlation([&](auto i) { return key.uniform(i); }), 1, 0.02);
}

TEST(Random, BelowReachesEveryValueUnderItsBoundAndNoOther) {
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < 7000; ++i) {
    const auto value = RandomKey{8, 9}.below(i, 7);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 7);
    ++counts[static_cast<std::size_t>(value)];
  }
  EXPECT_GT(std::ranges::min(counts), 850);
  EXPECT_LT(std::ranges::max(counts), 1150);
}

}  // namespace
}  // namespace xs
