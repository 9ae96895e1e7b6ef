#include "xstage/plan/moe_capacity.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

TEST(MoeCapacity, NoProblemHasMoreBlocksThanItsRowsCanFill) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    const auto capacity = capacity_of(problem);
    EXPECT_LE(problem.max_blocks(), capacity.max_blocks(problem.tiling().block_rows));
    require_capacity(problem, capacity);
  });
}

// Every way to spread rows over experts, and one that needs all blocks.
TEST(MoeCapacity, MostBlocksAreReachedByOneExpertWithAllRowsThatOthersLeave) {
  for (const int block_rows : {1, 3, 8}) {
    for (std::int64_t experts = 1; experts <= 3; ++experts) {
      for (std::int64_t rows = 0; rows <= 40; ++rows) {
        std::int64_t most = 0;
        for (std::int64_t a = 0; a <= (experts > 1 ? rows : 0); ++a) {
          for (std::int64_t b = 0; b <= (experts > 2 ? rows - a : 0); ++b) {
            const std::int64_t width = block_rows;
            most = std::max(most, ceil_div(a, width) + ceil_div(b, width) + ceil_div(rows - a - b, width));
          }
        }
        EXPECT_EQ((MoeCapacity{0, rows, experts}.max_blocks(block_rows)), most)
            << rows << " rows, " << experts << " experts, blocks of " << block_rows;
      }
    }
  }
}

TEST(MoeCapacity, WorstCaseHoldsEveryRoutingAndIsReached) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    const auto& shape = problem.shape();
    const auto most_tokens = std::ranges::max(problem.placement().tokens);
    const auto worst = worst_case(shape, problem.placement().experts, problem.num_ranks(), most_tokens);
    require_capacity(problem, worst);
    EXPECT_EQ(worst.local_experts, capacity_of(problem).local_experts);
  });
  // All tokens of four ranks to the two experts of rank 0, and each to the shared one.
  const MoeShape shape{8, 8, 8, 2, 1};
  const auto routing = make_routing("all-to-one", 20, 8, 2, 1);
  const auto problem = make_problem(shape, {}, 4, routing);
  EXPECT_EQ(capacity_of(problem), (MoeCapacity{5, 4 * 5 * 2 + 5, 3}));
  EXPECT_EQ(worst_case(shape, problem.placement().experts, 4, 5), capacity_of(problem));
}

TEST(MoeCapacity, OverflowNamesTheRankWhatItNeedsAndWhatThereIs) {
  const auto problem = make_problem({8, 8, 4, 1}, {}, 2, make_routing("all-to-one", 10, 4, 1, 1), {{3, 7}, {}});
  const auto enough = capacity_of(problem);
  const auto expect = [&](const MoeCapacity& capacity, const std::string& what) {
    expect_usage_error([&] { require_capacity(problem, capacity); }, {what});
  };
  expect({enough.tokens, 9, enough.local_experts}, "rank 0 receives 10 rows, there is room for 9");
  expect({6, enough.rows, enough.local_experts}, "rank 1 has 7 tokens, there is room for 6");
  expect({enough.tokens, enough.rows, 1}, "rank 0 holds 2 experts, there is room for 1");
}

}  // namespace
}  // namespace xs
