#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/sim/hand_machine.hpp"

// Closed forms of all that happens beside a worker that computes and stores in turn.

namespace xs {
namespace {

Timeline run(std::vector<std::vector<LooseTask>> ranks, SimOptions options, std::int32_t num_flags = 0,
             const SimMachine& machine = hand_machine()) {
  return run_by_hand(std::move(ranks), num_flags, machine, options);
}

TEST(TwoTilesInFlight, TheNextTileComputesWhileTheOneBeforeStores) {
  const LooseTask tile{.work = {800, 0}, .sends = {{1, 400}}};
  const auto timeline = run({{tile, tile}, {}}, {.tiles_in_flight = 2});
  ASSERT_EQ(timeline.spans.size(), 3u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 100);
  expect_span(timeline.spans[1], SpanKind::compute, 100, 200);
  // Nothing else is left to do, so the last store is the worker's own time.
  expect_span(timeline.spans[2], SpanKind::compute, 200, 223);
  // 360 B of the first are outstanding at 123, 200 at 203, and with the second 560 at 223.
  EXPECT_NEAR(timeline.makespan.value, 223 + 280 + 7, 1e-9);
}

TEST(TwoTilesInFlight, AStallIsSeenWhereThereIsNoThirdTile) {
  // The first 1000 B take 203 ns, 53 if nothing stalled. The stage is then full but for 3 ns of drain.
  const LooseTask tile{.work = {800, 0}, .sends = {{1, 1000}}};
  const auto timeline = run({{tile, tile, computes(10)}, {}}, {.tiles_in_flight = 2});
  ASSERT_EQ(timeline.spans.size(), 6u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 100);
  expect_span(timeline.spans[1], SpanKind::compute, 100, 200);
  expect_span(timeline.spans[2], SpanKind::sender_stall, 200, 303);
  EXPECT_EQ(timeline.spans[2].claim, 0);
  expect_span(timeline.spans[3], SpanKind::compute, 303, 313);
  EXPECT_EQ(timeline.spans[3].claim, 2);
  expect_span(timeline.spans[4], SpanKind::compute, 313, 356);  // what the second store takes when it does not stall
  expect_span(timeline.spans[5], SpanKind::sender_stall, 356, 803);
  EXPECT_EQ(timeline.spans[5].claim, 1);
  EXPECT_NEAR(timeline.makespan.value, 803 + 300 + 7, 1e-9);
}

LooseTask pulls(std::int32_t from, std::int64_t bytes) {
  return {.work = {80, 0, Route::pull}, .sends = {{from, bytes}}};
}

TEST(Pull, LoadsOverTheSourcesLinkBeforeItComputes) {
  const auto timeline = run({{pulls(1, 400)}, {}}, {});
  ASSERT_EQ(timeline.spans.size(), 2u);
  expect_span(timeline.spans[0], SpanKind::operand_stall, 0, 20 + 180 + 7);
  expect_span(timeline.spans[1], SpanKind::compute, 207, 217);
  EXPECT_DOUBLE_EQ(timeline.link_busy[0].value, 0);
  EXPECT_DOUBLE_EQ(timeline.link_busy[1].value, 200);
}

TEST(Pull, SharesThatLinkWithTheSourcesOwnStores) {
  // From 3 ns on both enter at 20 B/ns; full at 17.37 ns, when 347.4 and 287.4 B are in. Then 1 B/ns for each.
  const auto timeline = run({{pulls(1, 400)}, {{.sends = {{0, 400}}}}}, {});
  expect_span(spans_of(timeline, 0, 0).at(0), SpanKind::operand_stall, 0, 70 + 300 + 7);
  expect_span(spans_of(timeline, 1, 0).at(1), SpanKind::sender_stall, 23, 100);
  EXPECT_NEAR(timeline.makespan.value, 100 + 300 + 7, 1e-9);
  EXPECT_DOUBLE_EQ(timeline.link_busy[0].value, 0);
  EXPECT_NEAR(timeline.link_busy[1].value, 400, 1e-9);
}

TEST(Pull, FromSeveralRanksEndsWithTheLastAndOwnRowsAreThere) {
  LooseTask task = pulls(1, 100);
  task.sends.push_back({2, 250});
  task.sends.push_back({2, 150});
  task.sends.push_back({0, 4000});
  const auto timeline = run({{task}, {}, {}}, {});
  ASSERT_EQ(timeline.spans.size(), 2u);
  expect_span(timeline.spans[0], SpanKind::operand_stall, 0, 20 + 180 + 7);
  expect_span(timeline.spans[1], SpanKind::compute, 207, 217);
}

TEST(Pull, MayNameASourceTwiceAgainAndAgain) {
  LooseTask task = pulls(1, 100);
  task.sends.push_back({1, 300});
  const auto timeline = run({{task, task}, {}}, {});
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 2 * 217);
}

SimMachine with_copy_engine() {
  SimMachine machine = hand_machine();
  machine.copy_engine = machine.port;  // 10 ns before a transfer, then 10 B/ns
  machine.copy_engine->burst_overhead = {20};
  machine.copy_engine->free_issue = {5};
  return machine;
}

TEST(CopyEngine, MovesOneTransferAfterTheOtherWhileItsWorkerGoesOn) {
  const LooseTask copies{.work = {80, 0, Route::copy}, .raises = {{1, 0, 1}}, .sends = {{1, 400}}};
  const auto timeline = run({{copies, copies}, {{.waits = {{0, 2}}}}}, {}, 1, with_copy_engine());
  const auto first = spans_of(timeline, 0, 0), second = spans_of(timeline, 0, 1);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  expect_span(first[0], SpanKind::compute, 0, 10);
  expect_span(second[0], SpanKind::compute, 10, 20);
  // From 20 to 60, when 320 B are outstanding. The second from 70, with 300 B: full at 107.5, issued at 120.
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 120 + 300 + 7);
  EXPECT_NEAR(timeline.link_busy[0].value, 400, 1e-9);  // as if stored
}

TEST(CopyEngine, RaisesWhenTheCopyIsVisibleAndTheOwnRankAtOnce) {
  const LooseTask copies{.work = {80, 0, Route::copy}, .raises = {{1, 0, 1}, {0, 0, 1}}, .sends = {{1, 400}}};
  const LooseTask waits{.waits = {{0, 1}}};
  const auto timeline = run({{copies, waits}, {waits}}, {.workers_per_rank = 2}, 1, with_copy_engine());
  expect_span(spans_of(timeline, 0, 1).at(0), SpanKind::dependency, 0, 10);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 60 + 160 + 7);
}

TEST(CopyEngine, IsNeededForCopies) {
  expect_error(ErrorKind::usage,
               [] {
                 run({{{.work = {0, 0, Route::copy}, .sends = {{1, 4}}}}, {}}, {});
               },
               {"the schedule copies", "no copy engine"});
}

TEST(RankConditions, ALateRankBeginsLateAndOthersWaitForIt) {
  LooseTask raises = computes(10);
  raises.raises = {{0, 0, 1}};
  const auto timeline = run({{{.work = {80, 0}, .waits = {{0, 1}}}}, {raises}}, {.ranks = {{}, {.start = {50}}}}, 1);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::compute, 50, 60);
  expect_span(spans_of(timeline, 0, 0).at(0), SpanKind::dependency, 0, 60);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 70);
  EXPECT_DOUBLE_EQ(breakdown_by_rank(timeline)[1].tail, 60.0 / 70);
}

TEST(RankConditions, ASlowClockSlowsProductsAndIssueAndNotTheDrain) {
  const LooseTask tile{.work = {80, 0}, .sends = {{1, 400}}};
  const auto timeline = run({{tile}, {computes(10)}}, {.ranks = {{.clock_factor = 0.5}, {}}});
  ASSERT_EQ(timeline.spans.size(), 3u);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::compute, 0, 10);
  expect_span(spans_of(timeline, 0, 0).at(0), SpanKind::compute, 0, 20);
  expect_span(spans_of(timeline, 0, 0).at(1), SpanKind::compute, 20, 20 + 6 + 40);
  // 80 B drained while 400 entered.
  EXPECT_NEAR(timeline.makespan.value, 66 + 160 + 7, 1e-9);
}

TEST(RankConditions, ThereIsOneForEveryRankOrNone) {
  expect_usage_error([] { run({{}, {}}, {.ranks = {{}}}); }, {"2 ranks expected, 1 found"});
}

// Worker 0 stores to a peer; then worker 0 or 1 raises a flag of either rank for which others wait.
Timeline stores_then_raises(int raiser) {
  LooseTask raises = computes(10);
  raises.raises = {{0, 0, 1}, {1, 0, 1}};
  std::vector<LooseTask> tasks(6);
  tasks[0].sends = {{1, 400}};
  tasks[3 + static_cast<std::size_t>(raiser)] = raises;
  tasks[5].waits = {{0, 1}};
  return run({tasks, {{.waits = {{0, 1}}}}}, {.workers_per_rank = 3}, 1);
}

TEST(Release, WaitsForWhatItsOwnWorkerStoredBefore) {
  const auto timeline = stores_then_raises(0);
  expect_span(spans_of(timeline, 0, 3).at(0), SpanKind::compute, 23, 33);  // the worker does not wait
  expect_span(spans_of(timeline, 0, 5).at(0), SpanKind::dependency, 0, 23 + 180 + 7);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 23 + 180 + 7);
}

TEST(Release, DoesNotWaitForOtherWorkers) {
  const auto timeline = stores_then_raises(1);
  expect_span(spans_of(timeline, 0, 5).at(0), SpanKind::dependency, 0, 10);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 10);
}

TEST(Release, ToTheOwnRankTakesItsTime) {
  SimMachine machine = hand_machine();
  machine.own_raise = {100};
  LooseTask raises = computes(10);
  raises.raises = {{0, 0, 1}, {1, 0, 1}};
  const LooseTask waits{.waits = {{0, 1}}};
  const auto timeline = run({{raises, waits}, {waits}}, {.workers_per_rank = 2}, 1, machine);
  expect_span(spans_of(timeline, 0, 1).at(0), SpanKind::dependency, 0, 110);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 10);
}

TEST(Overheads, EveryTaskPaysItsOwnAndAClaimFromACounterMore) {
  SimMachine machine = hand_machine();
  machine.task_overhead = {20};
  machine.counter_claim = {10};
  const auto makespan = [&](Claim claim) {
    return run({{computes(3), computes(5)}}, {.claim = claim}, 0, machine).makespan;
  };
  EXPECT_DOUBLE_EQ(makespan(Claim::fixed).value, 8 + 2 * 10);
  EXPECT_DOUBLE_EQ(makespan(Claim::counter).value, 8 + 2 * 15);
}

}  // namespace
}  // namespace xs
