#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/loose_schedule.hpp"

// Tail, burst and ring of a schedule, and the limits on them.

namespace xs {
namespace {

LooseTask product(std::int64_t bytes) {
  LooseTask task{.work = {1, 0}};
  if (bytes > 0) {
    task.sends = {{1, bytes / 2}, {1, bytes - bytes / 2}, {0, 1000}};
    task.raises = {{1, 0, 1}};
  }
  return task;
}
LooseTask moves(std::int64_t bytes) {
  auto task = product(bytes);
  task.work.flops = 0;
  return task;
}

TEST(Figures, TailAndBurstCountWhatComputes) {
  const auto figures = [](std::vector<LooseTask> tasks) {
    return inspect(put_together(by_hand({std::move(tasks), {}}, 1))).ranks[0];
  };
  const auto none = figures({});
  EXPECT_EQ(none.tail_tasks, 0);
  EXPECT_EQ(none.largest_burst, 0);
  EXPECT_EQ(none.burst_claim, -1);
  const auto some = figures(
      {moves(900), product(0), product(70), product(40), product(0), product(60), moves(0), product(50), moves(800)});
  EXPECT_EQ(some.tail_tasks, 2);
  EXPECT_EQ(some.largest_burst, 70);
  EXPECT_EQ(some.burst_claim, 2);
  EXPECT_EQ(figures({product(10), product(20), product(0)}).tail_tasks, 0);
  EXPECT_EQ(figures({product(10), product(20)}).tail_tasks, 2);
}

TEST(Figures, SerialEndsWithAllItsLinear2AndAWaveWithItsOwn) {
  // One block for each expert, with rows of both ranks.
  const auto problem = make_problem({64, 32, 8, 2}, {16, 16, 32, 4}, 2, make_routing("balanced", 64, 8, 2, 1));
  const auto linear2 = std::int64_t{problem.num_blocks(0)} * problem.counts(0).linear2_tiles;
  const auto tail = [&](const Order& order) { return inspect(problem.schedule(order)).ranks[0].tail_tasks; };
  EXPECT_EQ(tail({OrderKind::serial}), linear2);
  EXPECT_EQ(tail({OrderKind::wave, 1}), linear2 / 4);
  // Alone, a rank sends to nobody.
  const auto alone = make_problem({64, 32, 8, 2}, {8, 16, 32, 4}, 1, make_routing("balanced", 64, 8, 2, 1));
  EXPECT_EQ(inspect(alone.schedule(Order{})).ranks[0].tail_tasks, 0);
}

TEST(Figures, RingBoundsAreThoseOfTheOrder) {
  for_random_problems([](const RandomProblem& random) {
    for (const auto& order : {Order{OrderKind::serial}, Order{OrderKind::wave, 2}}) {
      const auto& problem = random.problem;
      const auto schedule = problem.schedule(order);
      const auto report = inspect(schedule);
      for (int rank = 0; rank < problem.num_ranks(); ++rank) {
        const auto bound = ring_bound(expand(order, problem.counts(rank)), problem.num_blocks(rank));
        EXPECT_EQ(report.ranks[static_cast<std::size_t>(rank)].ring_bounds, (std::vector<std::int32_t>{0, bound, 0}));
      }
    }
  });
}

TEST(Limits, ABurstOfEveryWorkerMustFitIntoThePort) {
  const auto schedule = put_together(by_hand({{product(70), product(40)}, {}}, 1));
  const auto faults = [&](std::int64_t capacity, int workers) {
    return inspect(schedule, {.capacity_bytes = capacity, .workers = workers}).faults;
  };
  EXPECT_TRUE(faults(70, 1).empty());
  EXPECT_TRUE(faults(210, 3).empty());
  const auto found = faults(209, 3);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, FaultKind::over_capacity);
  EXPECT_EQ(found[0].text,
            "over capacity: rank 0, claim 0, dispatch(0, 0): sends 70 bytes to peers, so 3 workers may have 210 "
            "outstanding; 209 allowed");
  expect_usage_error([&] { inspect(schedule, {.workers = 0}); }, {"workers must be at least 1, found 0"});
}

TEST(Limits, ATailMustNotBeLonger) {
  const auto schedule = put_together(by_hand({{product(0), product(40), product(10)}, {product(0)}}, 1));
  EXPECT_TRUE(inspect(schedule, {.tail_tasks = 2}).faults.empty());
  const auto faults = inspect(schedule, {.tail_tasks = 1}).faults;
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::tail_too_long);
  EXPECT_EQ(faults[0].text, "tail too long: rank 0: its last 2 products all send to peers; 1 allowed");
  EXPECT_TRUE(check(schedule).empty());
}

}  // namespace
}  // namespace xs
