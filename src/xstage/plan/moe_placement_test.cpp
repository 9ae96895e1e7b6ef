#include "xstage/plan/moe_placement.hpp"

#include <gtest/gtest.h>

#include <set>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

using Ranks = std::vector<std::int32_t>;

Ranks list(std::span<const std::int32_t> ranks) { return {ranks.begin(), ranks.end()}; }

TEST(ExpertMap, ContiguousPartsAreEvenWithinOneExpertForEveryNumberOfRanks) {
  for (int num_experts = 1; num_experts <= 40; ++num_experts) {
    for (int num_ranks = 1; num_ranks <= 12; ++num_ranks) {
      const auto map = contiguous_experts(num_experts, num_ranks);
      Ranks held(static_cast<std::size_t>(num_ranks));
      int last = 0;
      for (int expert = 0; expert < num_experts; ++expert) {
        ASSERT_EQ(map.holders(expert).size(), 1u);
        const auto rank = map.holder(expert, 0);
        EXPECT_GE(rank, last);
        ++held[static_cast<std::size_t>(last = rank)];
      }
      EXPECT_LE(std::ranges::max(held) - std::ranges::min(held), 1) << num_experts << " on " << num_ranks;
    }
  }
}

TEST(ExpertMap, StridedExpertsGoAroundTheRanks) {
  const auto map = strided_experts(7, 3);
  for (int expert = 0; expert < 7; ++expert) EXPECT_EQ(list(map.holders(expert)), Ranks{expert % 3});
}

TEST(ExpertMap, SourcesAreDealtToReplicasInTurn) {
  const ExpertMap map({{5, 1, 3}, {2}}, 6);
  EXPECT_EQ(list(map.holders(0)), (Ranks{1, 3, 5}));
  Ranks dealt;
  for (int source = 0; source < 6; ++source) dealt.push_back(map.holder(0, source));
  EXPECT_EQ(dealt, (Ranks{1, 3, 5, 1, 3, 5}));
  for (int source = 0; source < 6; ++source) EXPECT_EQ(map.holder(1, source), 2);
}

TEST(ExpertMap, ASharedExpertStaysAtHome) {
  const auto map = contiguous_experts(4, 3).with_shared(2, 3);
  ASSERT_EQ(map.num_experts(), 6);
  for (const int shared : {4, 5}) {
    for (int source = 0; source < 3; ++source) EXPECT_EQ(map.holder(shared, source), source);
  }
}

TEST(ExpertMap, HoldersThatCannotBeAreUsageErrorsThatNameTheExpert) {
  expect_usage_error([] { ExpertMap({{0}, {}}, 2); }, {"no rank holds expert 1"});
  expect_usage_error([] { ExpertMap({{0}, {1, 2}}, 2); }, {"expert 1 lies on rank 2", "from 0 to 1"});
  expect_usage_error([] { ExpertMap({{0, -1}}, 2); }, {"expert 0 lies on rank -1"});
  expect_usage_error([] { ExpertMap({{1, 0, 1}}, 2); }, {"expert 0 lies on rank 1 twice"});
}

TEST(ExpertMap, FilesNameExpertAndRankInAnyOrder) {
  const TempFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("map.csv", text);
    return read_expert_map(folder / "map.csv", 3, 2);
  };
  EXPECT_EQ(read("rank,expert\n1,2\n1,0\n0,1\n0,2\n"), ExpertMap({{1}, {0}, {0, 1}}, 2));
  expect_usage_error([&] { read("expert,rank\n0,0\n2,1\n"); }, {"map.csv: ", "no rank holds expert 1"});
  expect_usage_error([&] { read("expert,rank\n0,0\n1,0\n2,1\n0,0\n"); },
                     {"map.csv: ", "expert 0 lies on rank 0 twice"});
  expect_usage_error([&] { read("expert,rank\n3,0\n"); }, {"map.csv:2", "expert"});
  expect_usage_error([&] { read("expert,rank\n0,2\n"); }, {"map.csv:2", "rank"});
  expect_usage_error([&] { read("expert\n0\n"); }, {"map.csv", "rank"});
  expect_usage_error([&] { read_expert_map(folder / "none.csv", 3, 2); }, {"none.csv"});
}

TEST(MoePlacement, WhatIsNotSaidLiesEvenly) {
  const MoeShape shape{8, 8, 5, 1};
  const auto even = complete({}, shape, 3, 8);
  EXPECT_EQ(even.tokens, (std::vector<std::int64_t>{3, 3, 2}));
  EXPECT_EQ(even.experts, contiguous_experts(5, 3));
  const MoePlacement given{{0, 8, 0}, strided_experts(5, 3)};
  EXPECT_EQ(complete(given, shape, 3, 8), given);
  expect_usage_error([&] { complete(given, shape, 3, 9); }, {"their sum 8 is not the number of tokens, 9"});
  expect_usage_error([&] { complete(given, shape, 4, 8); }, {"4 ranks expected, 3 numbers found"});
}

}  // namespace
}  // namespace xs
