#include "xstage/plan/check.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/loose_schedule.hpp"

namespace xs {
namespace {

// A layer on three ranks in which every rank has every kind of task, and whose parts a fault can be planted in.
class CheckFault : public testing::Test {
 protected:
  CheckFault() : loose_(take_apart(valid_)) {}

  const MoeProblem problem_ = make_problem({64, 32, 6, 2}, {8, 16, 32, 4}, 3, make_routing("balanced", 36, 6, 2, 1));
  const Schedule valid_ = problem_.schedule(Order{OrderKind::wave, 1});
  LooseSchedule loose_;

  std::size_t claim_of(std::size_t rank, const Task& task) const {
    const auto& tasks = valid_.ranks[rank].tasks;
    return static_cast<std::size_t>(std::ranges::find(tasks, task) - tasks.begin());
  }
  // The only kind that the checker reports, and its first fault.
  void expect_only(FaultKind kind, const std::string& text) const {
    expect_first(kind, text);
    for (const auto& fault : check(put_together(loose_), 1000)) EXPECT_EQ(fault.kind, kind) << fault.text;
  }
  // The first fault that the checker reports; others may follow from it.
  void expect_first(FaultKind kind, const std::string& text) const {
    const auto faults = check(put_together(loose_));
    ASSERT_FALSE(faults.empty());
    EXPECT_EQ(faults.front().kind, kind) << faults.front().text;
    EXPECT_EQ(faults.front().text, to_string(kind) + ": " + text);
  }
};

TEST_F(CheckFault, NoneWithoutAPlantedOne) { EXPECT_TRUE(check(put_together(loose_)).empty()); }

TEST_F(CheckFault, AnyDroppedTaskIsMissing) {
  for (std::size_t rank = 0; rank < loose_.ranks.size(); ++rank) {
    auto& tasks = loose_.ranks[rank].tasks;
    for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
      const LooseTask dropped = tasks[claim];
      const auto place = tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(claim));
      expect_first(FaultKind::tile_missing, fmt::format("rank {}: {} is never done", rank, to_string(dropped.task)));
      tasks.insert(place, dropped);
    }
  }
}

TEST_F(CheckFault, AnyTaskDoneTwice) {
  for (std::size_t rank = 0; rank < loose_.ranks.size(); ++rank) {
    auto& tasks = loose_.ranks[rank].tasks;
    for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
      tasks.push_back(LooseTask{tasks[claim].task});
      expect_first(FaultKind::tile_twice, fmt::format("rank {}, claim {}, {}: done before", rank, tasks.size() - 1,
                                                      to_string(tasks[claim].task)));
      tasks.pop_back();
    }
  }
}

TEST_F(CheckFault, ATaskOutsideItsGrid) {
  const auto claim = claim_of(0, {TaskKind::linear2, 1, 1});
  const auto blocks = problem_.num_blocks(0);
  for (const auto& [block, tile] : {std::pair{1, 2}, {1, -1}, {blocks, 0}, {-1, 0}}) {
    loose_.at(0, claim).task = {TaskKind::linear2, block, tile};
    expect_first(FaultKind::tile_unknown,
                 fmt::format("rank 0, claim {}, linear2({}, {}): the grid has {} blocks of 2 tiles", claim, block, tile,
                             blocks));
  }
}

TEST_F(CheckFault, ATaskOfAKindWithoutAGrid) {
  auto schedule = put_together(by_hand({{{}}}, 0));
  schedule.ranks[0].grids.clear();
  const auto faults = check(schedule);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].text, "tile unknown: rank 0, claim 0, dispatch(0, 0): the grid has 0 blocks of 0 tiles");
}

TEST_F(CheckFault, ARaiseOfAFlagOrRankThatDoesNotExist) {
  const auto num_flags = valid_.num_flags();
  auto& raises = loose_.at(1, 0).raises;
  for (const auto& [rank, flag] : {std::pair{0, num_flags}, {0, -1}, {3, 0}, {-1, 0}}) {
    raises.push_back({rank, flag, 1});
    expect_only(FaultKind::flag_unknown,
                fmt::format("rank 1, claim 0, dispatch(4, 0): raises flag {} of rank {}", flag, rank));
    raises.pop_back();
  }
}

TEST_F(CheckFault, AWaitForAFlagThatDoesNotExist) {
  for (const auto flag : {valid_.num_flags(), -1}) {
    loose_.at(1, 0).waits = {{flag, 0}};
    expect_only(FaultKind::flag_unknown, fmt::format("rank 1, claim 0, dispatch(4, 0): waits for flag {}", flag));
  }
}

TEST_F(CheckFault, ARaiseThatAddsNothing) {
  auto& raises = loose_.at(1, 0).raises;
  for (const auto add : {0, -1}) {
    raises.push_back({2, MoeProblem::counted(1), add});
    expect_only(FaultKind::raise_empty,
                fmt::format("rank 1, claim 0, dispatch(4, 0): adds {} to counted[1] of rank 2", add));
    raises.pop_back();
  }
}

TEST_F(CheckFault, ADroppedRaise) {
  loose_.at(0, claim_of(0, {TaskKind::linear1, 1, 0})).raises.clear();
  expect_only(FaultKind::wait_never_raised,
              fmt::format("rank 0, claim {}, linear2(1, 0): waits for 2 of activated[1], all raises add up to 1",
                          claim_of(0, {TaskKind::linear2, 1, 0})));
}

TEST_F(CheckFault, AnExtraRaise) {
  loose_.at(2, 0).raises.push_back({0, problem_.activated(1), 1});
  expect_only(FaultKind::wait_too_early,
              fmt::format("rank 0, claim {}, linear2(1, 0): waits for 2 of activated[1], all raises add up to 3",
                          claim_of(0, {TaskKind::linear2, 1, 0})));
}

TEST_F(CheckFault, ASmallerOrLargerWaitCount) {
  const auto claim = claim_of(2, {TaskKind::linear2, 1, 1});
  for (const auto count : {1, 3}) {
    loose_.at(2, claim).waits[0].count = count;
    expect_only(count < 2 ? FaultKind::wait_too_early : FaultKind::wait_never_raised,
                fmt::format("rank 2, claim {}, linear2(1, 1): waits for {} of activated[1], all raises add up to 2",
                            claim, count));
  }
}

TEST_F(CheckFault, ALinear2BeforeOneOfItsLinear1) {
  const auto before = claim_of(0, {TaskKind::linear1, 0, 1}), after = claim_of(0, {TaskKind::linear2, 0, 0});
  std::swap(loose_.at(0, before), loose_.at(0, after));
  expect_first(FaultKind::wait_forward,
               fmt::format("rank 0, claim {}, linear2(0, 0): waits for activated[0], which rank 0, claim {}, "
                           "linear1(0, 1) raises later",
                           before, after));
}

TEST_F(CheckFault, ATaskThatWaitsForItself) {
  loose_ = by_hand({{{.waits = {{0, 1}}, .raises = {{0, 0, 1}}}}}, 1);
  expect_first(FaultKind::wait_forward,
               "rank 0, claim 0, dispatch(0, 0): waits for flag[0], which rank 0, claim 0, "
               "dispatch(0, 0) raises later");
}

TEST_F(CheckFault, ACycleAcrossTwoRanks) {
  // Each rank's first task waits for the other's second, which stands behind it.
  const std::vector<LooseTask> rank0{{.waits = {{0, 1}}}, {.raises = {{1, 0, 1}}}};
  const std::vector<LooseTask> rank1{{.waits = {{0, 1}}}, {.raises = {{0, 0, 1}}}};
  loose_ = by_hand({rank0, rank1}, 1);
  expect_only(FaultKind::deadlock, "rank 0, claim 0, dispatch(0, 0): waits for 1 of flag[0], 0 can come");
  EXPECT_EQ(check(put_together(loose_)).size(), 2u);
  // Without one of the two waits the other is met.
  loose_.at(0, 0).waits.clear();
  EXPECT_TRUE(check(put_together(loose_)).empty());
}

// A rank may keep its rows for a peer back until its own products are done; two ranks that both do so wait forever.
TEST_F(CheckFault, LateDispatchOnTwoRanksIsADeadlock) {
  const auto send_late = [&](int rank, int peer) {
    auto& tasks = loose_.ranks[static_cast<std::size_t>(rank)].tasks;
    const auto stage = [&](const LooseTask& task) {
      if (task.task.kind == TaskKind::reduce) return 2;
      return task.task.kind == TaskKind::dispatch && problem_.holder(task.task.block, 0) == peer ? 1 : 0;
    };
    std::ranges::stable_sort(tasks, {}, stage);
  };
  send_late(0, 1);
  EXPECT_TRUE(check(put_together(loose_)).empty());
  send_late(1, 0);
  const auto faults = check(put_together(loose_));
  ASSERT_FALSE(faults.empty());
  for (const auto& fault : faults) EXPECT_EQ(fault.kind, FaultKind::deadlock) << fault.text;
}

TEST_F(CheckFault, ASendToARankThatDoesNotExist) {
  auto& sends = loose_.at(1, 0).sends;
  for (const int rank : {3, -1}) {
    sends.push_back({rank, 16});
    expect_only(FaultKind::send_unknown, fmt::format("rank 1, claim 0, dispatch(4, 0): sends to rank {} of 3", rank));
    sends.pop_back();
  }
}

TEST_F(CheckFault, ASendOfNothing) {
  for (const int bytes : {0, -1}) {
    loose_.at(1, 0).sends[0].bytes = bytes;
    expect_only(FaultKind::send_empty, fmt::format("rank 1, claim 0, dispatch(4, 0): sends {} bytes to rank 2", bytes));
  }
}

TEST_F(CheckFault, ASendThatNoRaisePublishes) {
  loose_.at(1, 0).sends.push_back({0, 16});  // its rows go to rank 2
  expect_only(FaultKind::send_unpublished, "rank 1, claim 0, dispatch(4, 0): sends to rank 0 and raises no flag there");
  loose_.at(1, 0).sends.back().rank = 1;  // nobody else sees a store into the own memory
  EXPECT_TRUE(check(put_together(loose_)).empty());
}

TEST_F(CheckFault, ListsOfDifferentLength) {
  const auto expect_torn = [&](const char* what, int found, auto&& change) {
    auto schedule = valid_;
    change(schedule.ranks[2]);
    const auto report = inspect(schedule);
    ASSERT_EQ(report.faults.size(), 1u);
    EXPECT_EQ(report.faults[0].kind, FaultKind::schedule_torn);
    const auto num_tasks = static_cast<int>(valid_.ranks[2].tasks.size());
    EXPECT_EQ(report.faults[0].text,
              fmt::format("schedule torn: rank 2: {} tasks, but {} of {}", num_tasks, num_tasks + found, what));
    EXPECT_TRUE(report.ranks.empty());
  };
  expect_torn("work", -1, [](RankSchedule& rank) { rank.work.pop_back(); });
  expect_torn("waits", 1, [](RankSchedule& rank) { rank.waits.end_row(); });
  expect_torn("raises", 1, [](RankSchedule& rank) { rank.raises.end_row(); });
  expect_torn("sends", 1, [](RankSchedule& rank) { rank.sends.end_row(); });
  expect_torn("accesses", 1, [](RankSchedule& rank) { rank.accesses.end_row(); });
  auto schedule = valid_;
  schedule.ranks[1].tasks.pop_back();
  EXPECT_EQ(check(schedule).size(), 5u);
}

TEST_F(CheckFault, GridsFlagsRegionsAndKindsThatCannotBe) {
  const auto expect_torn = [&](const std::string& text, auto&& change) {
    auto schedule = valid_;
    change(schedule);
    const auto faults = check(schedule);
    ASSERT_FALSE(faults.empty());
    EXPECT_EQ(faults[0].text, "schedule torn: " + text);
  };
  expect_torn("rank 0: a second or impossible grid of task kind 1, -1 blocks of 2 tiles",
              [](Schedule& schedule) { schedule.ranks[0].grids[1].num_blocks = -1; });
  expect_torn("rank 0: a second or impossible grid of task kind 0, 6 blocks of 1 tiles",
              [](Schedule& schedule) { schedule.ranks[0].grids.push_back(schedule.ranks[0].grids[0]); });
  expect_torn("rank 1, claim 4: task kind 9 is unknown",
              [](Schedule& schedule) { schedule.ranks[1].tasks[4].kind = TaskKind{9}; });
  expect_torn("flags combined begin at 2 and count 3; 3 flags stand before them",
              [](Schedule& schedule) { schedule.flags[1].first = 2; });
  expect_torn("region slots has -3 slots", [](Schedule& schedule) { schedule.regions[2].num_slots = -3; });
}

TEST_F(CheckFault, MostLimitsTheListAndKeepsItsBegin) {
  auto& tasks = loose_.ranks[0].tasks;
  tasks.erase(tasks.begin(), tasks.begin() + 20);
  const auto schedule = put_together(loose_);
  const auto all = check(schedule, 1000);
  ASSERT_GT(all.size(), 20u);
  EXPECT_EQ(check(schedule).size(), 10u);
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, all.size()}) {
    const auto some = check(schedule, most);
    ASSERT_EQ(some.size(), most);
    for (std::size_t i = 0; i < most; ++i) EXPECT_EQ(some[i].text, all[i].text);
  }
  EXPECT_THROW(check(schedule, 0), Error);
}

TEST_F(CheckFault, RequireValidListsTheFaultsAndNamesTheSchedule) {
  require_valid(valid_, "wave:1");
  auto& tasks = loose_.ranks[1].tasks;
  tasks.erase(tasks.begin());
  const auto schedule = put_together(loose_);
  const auto faults = check(schedule);
  ASSERT_GT(faults.size(), 1u);
  for (const auto& fault : faults) {
    expect_usage_error([&] { require_valid(schedule, "mine.json"); }, {"\n  " + fault.text});
  }
  expect_usage_error([&] { require_valid(schedule, "mine.json"); }, {"mine.json: this schedule fails the check"});
}

}  // namespace
}  // namespace xs
