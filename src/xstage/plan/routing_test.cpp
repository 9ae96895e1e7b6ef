#include "xstage/plan/routing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

std::vector<std::int64_t> rows_of_experts(const Routing& routing, int num_experts) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(num_experts));
  for (const auto expert : routing.expert) ++rows[static_cast<std::size_t>(expert)];
  return rows;
}

std::vector<std::int64_t> rows_of_ranks(const std::vector<std::int64_t>& experts, int num_ranks) {
  std::vector<std::int64_t> rows;
  const auto begin = [&](int rank) {
    return experts.begin() + split_begin(static_cast<std::int64_t>(experts.size()), num_ranks, rank);
  };
  for (int rank = 0; rank < num_ranks; ++rank) {
    rows.push_back(std::accumulate(begin(rank), begin(rank + 1), std::int64_t{0}));
  }
  return rows;
}

// Busiest over mean.
double skew(const std::vector<std::int64_t>& rows) {
  const auto sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  return static_cast<double>(std::ranges::max(rows)) * static_cast<double>(rows.size()) / static_cast<double>(sum);
}

TEST(Routing, EveryNameGivesDistinctExpertsInRangeAndWeightsThatSumToOne) {
  for (const auto& [name, what] : list_routings()) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Dice dice(seed);
      const int num_experts = dice.whole(1, 70);
      const int topk = dice.whole(1, std::min(num_experts, 10));
      const auto num_tokens = dice.whole(0, 50);
      SCOPED_TRACE(
          fmt::format("{}: {} tokens, {} experts, top-{}, seed {}", name, num_tokens, num_experts, topk, seed));
      const auto routing = make_routing(name, num_tokens, num_experts, topk, seed);
      ASSERT_EQ(routing.num_tokens, num_tokens);
      ASSERT_EQ(routing.expert.size(), static_cast<std::size_t>(num_tokens * topk));
      ASSERT_EQ(routing.weight.size(), static_cast<std::size_t>(num_tokens * topk));
      for (int token = 0; token < num_tokens; ++token) {
        std::set<std::int32_t> experts;
        float sum = 0;
        for (int slot = 0; slot < topk; ++slot) {
          experts.insert(routing.expert_at(token, slot));
          const float weight = routing.weight[static_cast<std::size_t>(token * topk + slot)];
          EXPECT_GT(weight, 0);
          sum += weight;
        }
        EXPECT_EQ(experts.size(), static_cast<std::size_t>(topk));
        EXPECT_GE(*experts.begin(), 0);
        EXPECT_LT(*experts.rbegin(), num_experts);
        EXPECT_NEAR(sum, 1, 1e-6);
      }
    }
  }
}

TEST(Routing, SameSeedSameRoutingAndOtherSeedAnother) {
  for (const auto& [name, what] : list_routings()) {
    const auto first = make_routing(name, 40, 32, 4, 1);
    EXPECT_EQ(first.expert, make_routing(name, 40, 32, 4, 1).expert) << name;
    EXPECT_EQ(first.weight, make_routing(name, 40, 32, 4, 1).weight) << name;
    const auto second = make_routing(name, 40, 32, 4, 2);
    EXPECT_EQ(name == "all-to-one", first.expert == second.expert) << name;
    EXPECT_NE(first.weight, second.weight) << name;
  }
}

// More tokens only add to a routing. A rank's tokens lie in the middle of it, so this is what makes a routing the same
// on any number of ranks.
TEST(Routing, OfFewerTokensIsThePrefixOfOneOfMore) {
  for (const auto& [name, what] : list_routings()) {
    const auto all = make_routing(name, 200, 48, 6, 3);
    for (const int num_tokens : {1, 7, 64}) {
      const auto some = make_routing(name, num_tokens, 48, 6, 3);
      EXPECT_TRUE(std::equal(some.expert.begin(), some.expert.end(), all.expert.begin())) << name;
      EXPECT_TRUE(std::equal(some.weight.begin(), some.weight.end(), all.weight.begin())) << name;
    }
  }
}

TEST(Routing, RowsOfAnExpertDoNotDependOnTheNumberOfRanks) {
  for (const auto& [name, what] : list_routings()) {
    const auto routing = make_routing(name, 61, 24, 3, 5);
    const auto experts = rows_of_experts(routing, 24);
    for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
      const auto rows = count_rows(routing, 24, even_tokens(routing.num_tokens, num_ranks));
      for (std::size_t expert = 0; expert < 24; ++expert) {
        std::int64_t sum = 0;
        for (std::size_t cell = expert; cell < rows.size(); cell += 24) sum += rows[cell];
        EXPECT_EQ(sum, experts[expert]) << name << ", " << num_ranks << " ranks";
      }
    }
  }
}

TEST(Routing, BalancedGivesEveryExpertTheSameRowsWithinOne) {
  for (const int num_experts : {1, 5, 8, 60, 128, 160, 256, 384}) {
    const int topk = std::min(num_experts, 8);
    for (const int num_tokens : {1, 2, 3, 10, 33, 100, 1000}) {
      const auto rows = rows_of_experts(make_routing("balanced", num_tokens, num_experts, topk, 4), num_experts);
      EXPECT_LE(std::ranges::max(rows) - std::ranges::min(rows), 1) << num_experts << " experts, " << num_tokens;
    }
  }
}

// Also for few tokens, where a random choice would leave some ranks with half of what others get.
TEST(Routing, BalancedGivesEveryRankItsShareWithinOneRowForPowersOfTwo) {
  for (const int num_experts : {8, 64, 128, 256}) {
    for (const int num_ranks : {2, 4, 8}) {
      for (int num_tokens = 1; num_tokens < 40; ++num_tokens) {
        const auto rows = rows_of_ranks(
            rows_of_experts(make_routing("balanced", num_tokens, num_experts, 6, 9), num_experts), num_ranks);
        EXPECT_LE(std::ranges::max(rows) - std::ranges::min(rows), 1)
            << num_experts << " experts, " << num_ranks << " ranks, " << num_tokens << " tokens";
      }
    }
  }
}

TEST(Routing, BalancedGivesEveryRankItsShareWithinThreeRowsElse) {
  for (const int num_experts : {60, 128, 160, 384, 512}) {
    for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
      for (int num_tokens = 1; num_tokens < 70; ++num_tokens) {
        const auto rows = rows_of_ranks(
            rows_of_experts(make_routing("balanced", num_tokens, num_experts, 8, 9), num_experts), num_ranks);
        for (int rank = 0; rank < num_ranks; ++rank) {
          const auto experts =
              split_begin(num_experts, num_ranks, rank + 1) - split_begin(num_experts, num_ranks, rank);
          const double share = 8.0 * num_tokens * static_cast<double>(experts) / num_experts;
          ASSERT_LE(std::abs(static_cast<double>(rows[static_cast<std::size_t>(rank)]) - share), 3)
              << num_experts << " experts, rank " << rank << " of " << num_ranks << ", " << num_tokens << " tokens";
        }
      }
    }
  }
}

TEST(Routing, SkewOfExpertsAndRanksGrowsFromBalancedToStress) {
  for (const int num_experts : {64, 256}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      double expert_skew = 0, rank_skew = 0;
      for (const std::string name : {"balanced", "moderate", "zipf", "stress"}) {
        const auto rows = rows_of_experts(make_routing(name, 2048, num_experts, 8, seed), num_experts);
        EXPECT_GT(skew(rows), expert_skew) << name << ", seed " << seed;
        EXPECT_GT(skew(rows_of_ranks(rows, 8)), rank_skew) << name << ", seed " << seed;
        expert_skew = skew(rows);
        rank_skew = skew(rows_of_ranks(rows, 8));
      }
    }
  }
}

// The exponents are those that the list names: the second most popular expert gets 2^-s of the first's rows.
TEST(Routing, PopularityFallsByTheNamedExponent) {
  const std::pair<std::string, double> exponents[] = {{"moderate", 0.5}, {"zipf", 1.0}, {"stress", 1.5}};
  for (const auto& [name, exponent] : exponents) {
    auto rows = rows_of_experts(make_routing(name, 200000, 8, 1, 11), 8);
    std::ranges::sort(rows, std::greater<>());
    for (std::size_t place = 1; place < 8; ++place) {
      const double expected = std::pow(static_cast<double>(place + 1), -exponent);
      EXPECT_NEAR(static_cast<double>(rows[place]) / static_cast<double>(rows[0]), expected, 0.02) << name;
    }
  }
}

TEST(Routing, StressPutsThePopularExpertsOnTheFirstRank) {
  const auto experts = rows_of_experts(make_routing("stress", 4096, 64, 4, 2), 64);
  const auto ranks = rows_of_ranks(experts, 8);
  EXPECT_TRUE(std::ranges::is_sorted(ranks, std::greater<>()));
  EXPECT_GT(ranks[0], 4096 * 4 / 2);
}

TEST(Routing, AllToOneUsesTheFirstTopkExpertsOnly) {
  const auto rows = rows_of_experts(make_routing("all-to-one", 33, 16, 3, 2), 16);
  for (std::size_t expert = 0; expert < 16; ++expert) EXPECT_EQ(rows[expert], expert < 3 ? 33 : 0);
}

TEST(Routing, UnknownNamesAndImpossibleTopkAreUsageErrors) {
  expect_usage_error([] { make_routing("even", 4, 4, 2, 1); },
                     {"routing even: unknown; expected one of balanced, moderate, zipf, stress, all-to-one"});
  expect_usage_error([] { make_routing("zipf", 4, 4, 5, 1); }, {"between 1 and the 4 experts, found 5"});
  expect_usage_error([] { make_routing("zipf", 4, 4, 0, 1); }, {"between 1 and the 4 experts, found 0"});
}

TEST(Routing, CheckReturnsARightRoutingUnchanged) {
  const Routing routing{2, 2, {0, -1, -1, -1}, {0.25f, 0, -3, 1}};
  const auto checked = check_routing(routing, 4, "idx.npy");
  EXPECT_EQ(checked.expert, routing.expert);
  EXPECT_EQ(checked.weight, routing.weight);
}

TEST(Routing, CheckNamesWhatIsWrongWithARouting) {
  const auto expect = [](const Routing& routing, const std::string& what) {
    expect_usage_error([&] { check_routing(routing, 4, "idx.npy"); }, {"idx.npy: " + what});
  };
  const std::vector<float> ones(4, 1.0f);
  expect({2, 2, {0, 1, 2, 4}, ones}, "token 1, slot 1: expert 4 is out of range");
  expect({2, 2, {0, 1, -2, 3}, ones}, "token 1, slot 0: expert -2 is out of range");
  expect({2, 2, {0, 1, 3, 3}, ones}, "token 1 names expert 3 twice");
  expect({2, 2, {0, 1, 2, 3}, {1, 1, 1, std::numeric_limits<float>::quiet_NaN()}},
         "token 1, slot 1: the weight is nan");
  expect({2, 2, {0, 1, 2, 3}, {1, INFINITY, 1, 1}}, "token 0, slot 1: the weight is inf");
  expect({2, 2, {0, 1, 2}, ones}, "4 slots expected (2 tokens x top-2), 3 experts and 4 weights found");
  expect({2, 2, {0, 1, 2, 3}, {1, 1, 1}}, "4 slots expected (2 tokens x top-2), 4 experts and 3 weights found");
}

}  // namespace
}  // namespace xs
