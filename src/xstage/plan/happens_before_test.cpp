#include "xstage/plan/happens_before.hpp"

#include <gtest/gtest.h>

#include "xstage/plan/check.hpp"
#include "xstage/plan/loose_schedule.hpp"

namespace xs {
namespace {

std::vector<TaskId> all_tasks(const Schedule& schedule) {
  std::vector<TaskId> tasks;
  for (std::int32_t rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
    const auto& own = schedule.ranks[static_cast<std::size_t>(rank)].tasks;
    for (std::int32_t claim = 0; claim < std::ssize(own); ++claim) tasks.push_back({rank, claim});
  }
  return tasks;
}

TEST(HappensBefore, IsWhatCannotBeginWhileATaskIsHeldBack) {
  int before = 0, not_before = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const auto schedule = random_waits(seed);
    if (!check(schedule).empty()) continue;
    HappensBefore order(schedule);
    for (const auto& held : all_tasks(schedule)) {
      const auto begun = begin_without(schedule, held);
      for (const auto& task : all_tasks(schedule)) {
        if (task == held) continue;
        const bool may_overlap = std::ranges::find(begun, task) != begun.end();
        ++(may_overlap ? not_before : before);
        EXPECT_EQ(order.unfinished({&held, 1}, task), may_overlap ? std::optional(held) : std::nullopt)
            << "seed " << seed << ": " << to_string(schedule, held) << "; " << to_string(schedule, task);
      }
    }
  }
  EXPECT_GT(before, 1000);
  EXPECT_GT(not_before, 1000);
}

TEST(HappensBefore, OfManyTasksTheFirstThatIsNotIsNamed) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto schedule = random_waits(seed);
    if (!check(schedule).empty()) continue;
    HappensBefore order(schedule);
    const auto tasks = all_tasks(schedule);
    for (const auto& task : tasks) {
      std::optional<TaskId> expected;
      for (const auto& one : tasks) {
        if (!expected) expected = order.unfinished({&one, 1}, task);
      }
      EXPECT_EQ(order.unfinished(tasks, task), expected);
      EXPECT_EQ(order.unfinished({}, task), std::nullopt);
    }
  }
}

TEST(HappensBefore, ASmallerClaimIsNotBefore) {
  const auto schedule = put_together(by_hand({{{}, {}}}, 0));
  EXPECT_EQ(HappensBefore(schedule).unfinished(std::vector<TaskId>{{0, 0}}, {0, 1}), (TaskId{0, 0}));
}

TEST(HappensBefore, GoesThroughOtherRanks) {
  // dispatch(0) on rank 0 → rank 1 → rank 2 → dispatch(1) on rank 0.
  const auto schedule = put_together(by_hand({{{.raises = {{1, 0, 1}}}, {.waits = {{0, 1}}}},
                                              {{.waits = {{0, 1}}, .raises = {{2, 0, 1}}}},
                                              {{.waits = {{0, 1}}, .raises = {{0, 0, 1}}}}},
                                             1));
  HappensBefore order(schedule);
  EXPECT_EQ(order.unfinished(all_tasks(schedule), {0, 1}), std::nullopt);
  EXPECT_EQ(order.unfinished(all_tasks(schedule), {2, 0}), (TaskId{0, 1}));
}

}  // namespace
}  // namespace xs
