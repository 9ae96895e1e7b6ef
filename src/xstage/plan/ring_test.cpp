#include "xstage/plan/ring.hpp"

#include <gtest/gtest.h>

#include "xstage/plan/check.hpp"
#include "xstage/plan/loose_schedule.hpp"

namespace xs {
namespace {

TEST(Ring, BoundOfUsesByHand) {
  const auto bound = [](std::vector<RingUse> uses) { return ring_bound(uses); };
  EXPECT_EQ(bound({}), 0);
  EXPECT_EQ(bound({{0, 5}}), 1);
  EXPECT_EQ(bound({{0, 1}, {2, 3}, {4, 5}}), 1);
  EXPECT_EQ(bound({{0, 2}, {1, 4}, {3, 5}}), 2);  // each begins before the one before it ends
  EXPECT_EQ(bound({{0, 9}, {1, 2}, {3, 4}}), 3);  // the first lasts until the end
  EXPECT_EQ(bound({{0, 1}, {2, 6}, {3, 5}, {4, 7}}), 3);
  EXPECT_EQ(bound({{3, 4}, {0, 1}}), 2);  // the second use comes first
}

// No slot is taken while it is in use, which is tried for every number of slots from one on.
TEST(Ring, BoundOfRandomUsesIsTheSmallestThatWorks) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Dice dice(seed);
    std::vector<RingUse> uses(pick(dice, 8) + 1);
    for (auto& use : uses) {
      use.first = dice.whole(0, 30);
      use.last = use.first + dice.whole(0, 20);
    }
    if (chance(dice, 0.7)) std::ranges::sort(uses, {}, &RingUse::first);
    const auto works = [&](std::size_t slots) {
      for (std::size_t use = 0; use < uses.size(); ++use) {
        for (std::size_t later = use + slots; later < uses.size(); ++later) {
          if (uses[later].first <= uses[use].last) return false;
        }
      }
      return true;
    };
    std::size_t smallest = 1;
    while (!works(smallest)) ++smallest;
    EXPECT_EQ(ring_bound(uses), static_cast<std::int32_t>(smallest)) << "seed " << seed;
  }
}

// The checker accepts a layer from its bound on, and names the bound below it.
TEST(Ring, BoundOfAnOrderIsTheSmallestRingThatTheCheckerAccepts) {
  std::uint64_t seed = 0;
  for_random_problems([&](const RandomProblem& random) {
    for (const auto& order : {random_order(seed++), Order{OrderKind::wave, 1}}) {
      const auto bound = ring_bound(random.problem, order);
      for (std::int32_t ring = 1; ring <= random.problem.max_blocks() + 1; ++ring) {
        const auto faults = check(random.problem.with_ring(ring).schedule(order));
        EXPECT_EQ(faults.empty(), ring >= bound) << to_string(order) << ", " << ring << " slots, bound " << bound;
        for (const auto& fault : faults) EXPECT_EQ(fault.kind, FaultKind::ring_too_small) << fault.text;
      }
    }
  });
}

TEST(Ring, BoundOfTheKnownOrders) {
  const auto problem = make_problem({64, 32, 12, 2}, {4, 16, 32, 4}, 2, make_routing("zipf", 96, 12, 2, 1));
  const Counts counts = problem.counts(0);
  const auto bound = [&](const Order& order) { return ring_bound(expand(order, counts), counts.num_blocks()); };
  EXPECT_EQ(bound({OrderKind::serial}), counts.num_blocks());
  for (std::int32_t experts = 1; experts <= counts.num_groups; ++experts) {
    std::int32_t largest = 0;  // blocks of a wave
    for (std::int32_t first = 0; first < counts.num_groups; first += experts) {
      const auto end = std::min(first + experts, counts.num_groups);
      largest = std::max(largest, counts.group_blocks[end] - counts.group_blocks[first]);
    }
    EXPECT_EQ(bound({OrderKind::wave, experts}), largest);
  }
}

// The order of blocks is that of the tasks: permuting it changes nothing.
TEST(Ring, BoundDoesNotDependOnHowBlocksAreNumbered) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      auto tasks = expand(Order{OrderKind::wave, 2}, problem.counts(rank));
      const auto num_blocks = problem.num_blocks(rank);
      const auto bound = ring_bound(tasks, num_blocks);
      for (auto& task : tasks) {
        if (task.kind == TaskKind::linear1 || task.kind == TaskKind::linear2) task.block = num_blocks - 1 - task.block;
      }
      EXPECT_EQ(ring_bound(tasks, num_blocks), bound);
    }
  });
}

}  // namespace
}  // namespace xs
