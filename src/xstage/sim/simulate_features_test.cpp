#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/sim/by_hand.hpp"

// What a rank can do besides storing tile after tile, against closed forms.

namespace xs {
namespace {

// With room for everything: first in, first out, and nothing stalls.
SimMachine roomy() {
  SimMachine machine = machine_by_hand();
  machine.port.capacity = {1e9};
  return machine;
}

SimMachine with_copy_engine(SimMachine machine) {
  PortParams engine;  // 50 B/ns, 4 ns after it began
  engine.burst_overhead = {8};
  engine.free_issue = {25};
  machine.copy_engine = engine;
  return machine;
}

SimOptions two_in_flight(int workers = 1) { return {.workers_per_rank = workers, .tiles_in_flight = 2}; }

LooseTask waits_for(std::int32_t flag, std::int64_t count = 1) { return {.work = {80, 0}, .waits = {{flag, count}}}; }

// When the first task of a rank got what it waited for.
double waited_until(const Timeline& timeline, int rank, std::int64_t claim = 0) {
  const auto spans = spans_of(timeline, rank, claim);
  EXPECT_EQ(spans.at(0).kind, SpanKind::dependency);
  return spans.at(0).end.value;
}

TEST(TilesInFlight, TheNextTileComputesWhileTheOneBeforeStores) {
  // 1000 B issue in 53 ns at best and in 203 here; with one in flight all would come one after the other.
  const std::vector<std::vector<LooseTask>> ranks{{{.work = {80, 0}, .sends = {{1, 1000}}}, computes(50), computes(10)},
                                                  {}};
  const auto timeline = simulate_by_hand(ranks, 0, machine_by_hand(), two_in_flight());
  ASSERT_EQ(timeline.spans.size(), 5u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 10);
  expect_span(timeline.spans[1], SpanKind::compute, 10, 60);
  EXPECT_EQ(timeline.spans[1].claim, 1);
  // Both tiles are taken: the worker waits for the stores of the first.
  expect_span(timeline.spans[2], SpanKind::compute, 60, 63);
  EXPECT_EQ(timeline.spans[2].claim, 0);
  expect_span(timeline.spans[3], SpanKind::sender_stall, 63, 213);
  EXPECT_EQ(timeline.spans[3].claim, 0);
  expect_span(timeline.spans[4], SpanKind::compute, 213, 223);
  EXPECT_NEAR(timeline.makespan.value, 213 + 300 + 7, 1e-9);

  const auto one = simulate_by_hand(ranks, 0, machine_by_hand(), {});
  expect_span(spans_of(one, 0, 1).at(0), SpanKind::compute, 213, 263);
  const auto three = simulate_by_hand(ranks, 0, machine_by_hand(), {.tiles_in_flight = 3});
  expect_span(spans_of(three, 0, 2).at(0), SpanKind::compute, 60, 70);
}

TEST(TilesInFlight, StoresThatFitIntoTheNextTileCostOnlyBehindTheLast) {
  const std::vector<LooseTask> tiles(10, {.work = {8 * 60, 0}, .sends = {{1, 100}}});
  // 8 ns of issue, then 90 B outstanding.
  const double last = 8 + 45 + 7;
  EXPECT_NEAR(simulate_by_hand({tiles, {}}, 0, machine_by_hand(), two_in_flight()).makespan.value, 10 * 60 + last,
              1e-9);
  EXPECT_NEAR(simulate_by_hand({tiles, {}}, 0, machine_by_hand(), {}).makespan.value, 10 * 60 + 9 * 8 + last, 1e-9);
}

TEST(TilesInFlight, WithMoreBytesThanTheLinkDrainsItIsNeverIdle) {
  const std::vector<LooseTask> tiles(50, {.work = {80, 0}, .sends = {{1, 400}}});
  const auto timeline = simulate_by_hand({tiles, {}}, 0, machine_by_hand(), two_in_flight());
  EXPECT_NEAR(timeline.makespan.value, 10 + 3 + 50 * 200 + 7, 1e-6);
}

TEST(TilesInFlight, TheLastStoresAreNoTail) {
  const auto timeline =
      simulate_by_hand({{{.work = {80, 0}, .sends = {{1, 1000}}}}, {}}, 0, machine_by_hand(), two_in_flight());
  ASSERT_EQ(timeline.spans.size(), 3u);
  expect_span(timeline.spans[1], SpanKind::compute, 10, 63);
  expect_span(timeline.spans[2], SpanKind::sender_stall, 63, 213);
}

TEST(TilesInFlight, NoneIsAUsageError) {
  expect_usage_error([] { simulate({}, machine_by_hand(), {.tiles_in_flight = 0}); }, {"at least 1, found 0"});
}

// Warps beside the workers issue 5 B/ns.
SimMachine with_senders(SimMachine machine) {
  machine.dispatch_issue = BytesPerCycle{2.5};
  return machine;
}

LooseTask linear(double nanos, std::vector<Wait> waits = {}) {
  return {.task = {TaskKind::linear1, 0, 0}, .work = {8 * nanos, 0}, .waits = std::move(waits)};
}

TEST(DispatchBeside, WorkersComputeMeanwhile) {
  const std::vector<LooseTask> rank{{.sends = {{1, 100}}}, linear(50), linear(50)};
  const auto timeline = simulate_by_hand({rank, {}}, 0, with_senders(roomy()), {});
  ASSERT_EQ(timeline.spans.size(), 2u) << "senders are in no share";
  expect_span(timeline.spans[0], SpanKind::compute, 0, 50);
  expect_span(timeline.spans[1], SpanKind::compute, 50, 100);
  // By themselves: 3 ns and 100 B at 20 B/ns, before the products.
  const auto alone = simulate_by_hand({rank, {}}, 0, roomy(), {});
  expect_span(spans_of(alone, 0, 1).at(0), SpanKind::compute, 8, 58);
}

TEST(DispatchBeside, EachWorkersSenderHasItsPace) {
  const LooseTask dispatches{.raises = {{1, 0, 1}}, .sends = {{1, 1000}}};
  const std::vector<std::vector<LooseTask>> ranks{{dispatches, dispatches}, {linear(10, {{0, 2}})}};
  SimMachine fast = with_senders(roomy());
  fast.port.drain = {1000};
  // 3 ns and 1000 B at 5 B/ns each, and 7 ns until they are visible.
  EXPECT_NEAR(waited_until(simulate_by_hand(ranks, 1, fast, {}), 1), 2 * 203 + 7, 1e-6);
  EXPECT_NEAR(waited_until(simulate_by_hand(ranks, 1, fast, {.workers_per_rank = 2}), 1), 203 + 7, 1e-6);
  // The link, at 2 B/ns, is behind.
  EXPECT_NEAR(waited_until(simulate_by_hand(ranks, 1, with_senders(roomy()), {}), 1), 3 + 2000 / 2.0 + 7, 1e-6);
}

TEST(DispatchBeside, OfTheRankItselfItRaisesWhenTheRowsAreThere) {
  const LooseTask dispatches{.raises = {{0, 0, 1}}, .sends = {{0, 1000}}};
  for (const auto claim : {Claim::fixed, Claim::counter}) {
    const auto timeline =
        simulate_by_hand({{dispatches, linear(10, {{0, 1}})}}, 1, with_senders(roomy()), {.claim = claim});
    expect_span(spans_of(timeline, 0, 1).at(1), SpanKind::compute, 1000 / 5.0, 1000 / 5.0 + 10);
  }
}

LooseTask pulls(std::vector<Send> from, double nanos) {
  return {.work = {8 * nanos, 0, Route::pull}, .sends = std::move(from)};
}

TEST(Pull, LoadsOverTheLinkOfTheSourceBeforeItComputes) {
  // Its bytes leave rank 0 from 0 to 200 ns. Rank 1's own rows lie there.
  const auto timeline = simulate_by_hand({{}, {pulls({{0, 400}, {1, 4000}}, 10)}}, 0, machine_by_hand(), {});
  ASSERT_EQ(timeline.spans.size(), 2u);
  expect_span(timeline.spans[0], SpanKind::operand_stall, 0, 207);
  expect_span(timeline.spans[1], SpanKind::compute, 207, 217);
  EXPECT_NEAR(timeline.makespan.value, 217, 1e-9);
  EXPECT_NEAR(timeline.link_busy[0].value, 200, 1e-9);
  EXPECT_EQ(timeline.link_busy[1].value, 0);
}

TEST(Pull, FromSeveralSourcesEndsWithTheSlowest) {
  const auto timeline = simulate_by_hand({{}, {pulls({{0, 50}, {2, 400}, {0, 50}}, 10)}, {}}, 0, machine_by_hand(), {});
  expect_span(timeline.spans.at(0), SpanKind::operand_stall, 0, 207);
  EXPECT_NEAR(timeline.link_busy[0].value, 50, 1e-9);
  EXPECT_NEAR(timeline.link_busy[2].value, 200, 1e-9);
}

TEST(Pull, SharesTheLinkWithTheStoresOfItsSource) {
  // The pull's last byte enters at 20 ns behind 340 B of the store, which end at 23 ns.
  const auto timeline = simulate_by_hand({{{.sends = {{1, 400}}}}, {pulls({{0, 400}}, 10)}}, 0, roomy(), {});
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::operand_stall, 0, 20 + (400 + 340 - 40) / 2 + 7);
  EXPECT_NEAR(timeline.link_busy[0].value, 400, 1e-9);
  EXPECT_NEAR(timeline.makespan.value, 400 + 7, 1e-9);
}

TEST(Pull, IsServedLikeAStoreWhenTheLinkIsFull) {
  // Both enter at 1 B/ns from about 20 ns on, where they alone would have 2.
  SimMachine machine = machine_by_hand();
  machine.port.burst_overhead = {0};
  for (const double fairness : {0.0, 1.0}) {
    machine.port.group_fairness = fairness;
    machine.port.groups = {0, 0, 1};
    const auto timeline =
        simulate_by_hand({{{.sends = {{1, 10000}}}}, {pulls({{0, 10000}}, 10)}}, 0, machine, {.workers_per_rank = 3});
    const double both_in = (20000 - 600) / 2.0;  // what has drained when the last bytes enter
    EXPECT_NEAR(spans_of(timeline, 0, 0).back().end.value, both_in, 1e-6) << fairness;
    EXPECT_NEAR(spans_of(timeline, 1, 0).front().end.value, both_in + 300 + 7, 1e-6) << fairness;
  }
}

LooseTask copies(double bytes, std::int32_t flag = -1) {
  LooseTask task{.work = {80, 0, Route::copy}, .sends = {{1, static_cast<std::int64_t>(bytes)}}};
  if (flag >= 0) task.raises = {{1, flag, 1}};
  return task;
}

TEST(CopyEngine, MovesWhileTheWorkerGoesOn) {
  const auto timeline = simulate_by_hand({{copies(4000, 0), computes(10), computes(10)}, {waits_for(0)}}, 1,
                                         with_copy_engine(roomy()), {});
  expect_span(spans_of(timeline, 0, 1).at(0), SpanKind::compute, 10, 20);
  expect_span(spans_of(timeline, 0, 2).at(0), SpanKind::compute, 20, 30);
  EXPECT_NEAR(waited_until(timeline, 1), 10 + 4 + 2000 + 7, 1e-9);
  EXPECT_NEAR(timeline.link_busy[0].value, 2000, 1e-9);
  EXPECT_EQ(timeline.totals[0][static_cast<std::size_t>(SpanKind::sender_stall)].value, 0);
}

TEST(CopyEngine, TakesOneTransferAfterTheOther) {
  SimMachine machine = with_copy_engine(roomy());
  machine.port.drain = {100};  // so that the engine is what they wait for
  const auto timeline = simulate_by_hand({{copies(4000, 0), copies(4000, 1)}, {waits_for(0), waits_for(1)}}, 2, machine,
                                         {.workers_per_rank = 2});
  EXPECT_NEAR(waited_until(timeline, 1, 0), 10 + 4 + 80 + 7, 1e-9);
  EXPECT_NEAR(waited_until(timeline, 1, 1), 10 + 2 * (4 + 80) + 7, 1e-9);
}

TEST(CopyEngine, RaisesAtTheOwnRankAtOnce) {
  LooseTask copy = copies(400, 0);
  copy.raises.push_back({0, 0, 1});
  const auto timeline = simulate_by_hand({{copy, waits_for(0)}, {waits_for(0)}}, 1, with_copy_engine(roomy()), {2});
  EXPECT_NEAR(waited_until(timeline, 0, 1), 10, 1e-9);
  EXPECT_NEAR(waited_until(timeline, 1), 10 + 4 + 200 + 7, 1e-9);
}

TEST(CopyEngine, DrainsThroughTheLinkOfTheStores) {
  // The copy's last byte enters at 12 ns behind 180 B of the store, of which 18 B have drained; the store's at 23 ns.
  LooseTask copy = copies(400, 0), store{.raises = {{1, 1, 1}}, .sends = {{1, 400}}};
  copy.work.flops = 0;
  const auto timeline = simulate_by_hand({{copy, store}, {waits_for(0), waits_for(1)}}, 2, with_copy_engine(roomy()),
                                         {.workers_per_rank = 2});
  EXPECT_NEAR(waited_until(timeline, 1, 0), 12 + (400 + 180 - 18) / 2 + 7, 1e-9);
  EXPECT_NEAR(waited_until(timeline, 1, 1), 3 + 400 + 7, 1e-9);
}

TEST(CopyEngine, OfAMachineWithoutOneIsAUsageError) {
  expect_usage_error([] { simulate_by_hand({{copies(400)}, {}}, 0, machine_by_hand(), {}); }, {"copy engine"});
}

TEST(RankConditions, ALateRankBeginsLateAndItsPeersWaitForIt) {
  SimOptions options;
  options.ranks = {{{100}, 1}, {}};
  const auto timeline =
      simulate_by_hand({{{.work = {80, 0}, .raises = {{1, 0, 1}}}}, {waits_for(0)}}, 1, machine_by_hand(), options);
  expect_span(spans_of(timeline, 0, 0).at(0), SpanKind::compute, 100, 110);
  EXPECT_NEAR(waited_until(timeline, 1), 110, 1e-9);
  const auto ranks = breakdown_by_rank(timeline);
  EXPECT_DOUBLE_EQ(ranks[0].tail, 110.0 / 120);
  EXPECT_DOUBLE_EQ(ranks[1].tail, 0);
}

TEST(RankConditions, ASlowClockSlowsProductsAndIssueAndNotTheLink) {
  SimMachine machine = machine_by_hand();
  machine.memory = {4};
  machine.task_overhead = {4};
  SimOptions options;
  options.ranks = {{{0}, 0.5}, {}};
  const auto timeline = simulate_by_hand(
      {{{.work = {80, 400}}, {.work = {80, 0}, .sends = {{1, 400}}}}, {computes(10)}}, 0, machine, options);
  // Products and overhead take 24 ns instead of 12, operands 100 as ever.
  expect_span(timeline.spans.at(0), SpanKind::operand_stall, 0, 76);
  expect_span(spans_of(timeline, 0, 0).at(1), SpanKind::compute, 76, 100);
  expect_span(spans_of(timeline, 0, 1).at(0), SpanKind::compute, 100, 124);
  // 6 ns instead of 3, 40 instead of 20.
  expect_span(spans_of(timeline, 0, 1).at(1), SpanKind::compute, 124, 170);
  EXPECT_NEAR(timeline.makespan.value, 130 + 200 + 7, 1e-9);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::compute, 0, 12);
}

TEST(RankConditions, OfAnotherNumberOfRanksOrWithoutAClockAreUsageErrors) {
  const auto with = [](std::vector<RankCondition> ranks) {
    return [ranks] { simulate_by_hand({{}, {}}, 0, machine_by_hand(), {.ranks = ranks}); };
  };
  expect_usage_error(with({{}}), {"2 ranks", "1"});
  expect_usage_error(with({{}, {{0}, 0}}), {"rank 1", "clock", "0"});
  expect_usage_error(with({{{-1}, 1}, {}}), {"rank 0", "-1"});
}

// Claims 0 and 2 are worker 0's, 1 and 3 worker 1's.
TEST(Release, WaitsForWhatItsWorkerStoredToPeers) {
  const LooseTask stores{.sends = {{1, 400}}};  // visible after 210 ns
  LooseTask raises = computes(10);
  raises.raises = {{0, 0, 1}, {1, 0, 1}};
  const auto run = [&](const LooseTask& first, const LooseTask& second) {
    return simulate_by_hand({{first, second, raises, waits_for(0)}, {waits_for(0)}}, 1, machine_by_hand(), {2});
  };
  const auto same_worker = run(stores, {});
  EXPECT_NEAR(waited_until(same_worker, 0, 3), 210, 1e-9);
  EXPECT_NEAR(waited_until(same_worker, 1), 210, 1e-9);
  expect_span(spans_of(same_worker, 0, 2).at(0), SpanKind::compute, 23, 33);  // the worker does not
  const auto other_worker = run({}, stores);
  EXPECT_NEAR(waited_until(other_worker, 1), 10, 1e-9);
  expect_span(spans_of(other_worker, 0, 3).at(0), SpanKind::compute, 23, 33);
}

TEST(Release, OfATileThatStoresWaitsForItsOwnBytes) {
  const auto timeline =
      simulate_by_hand({{{.raises = {{0, 0, 1}}, .sends = {{1, 400}}}, waits_for(0)}, {}}, 1, machine_by_hand(), {2});
  EXPECT_NEAR(waited_until(timeline, 0, 1), 210, 1e-9);
}

TEST(Release, TakesItsTimeOnTheOwnRank) {
  SimMachine machine = machine_by_hand();
  machine.own_raise = {15};
  LooseTask raises = computes(10);
  raises.raises = {{0, 0, 1}, {1, 0, 1}};
  const auto timeline = simulate_by_hand({{raises, waits_for(0)}, {waits_for(0)}}, 1, machine, {2});
  EXPECT_NEAR(waited_until(timeline, 0, 1), 25, 1e-9);
  EXPECT_NEAR(waited_until(timeline, 1), 10, 1e-9);
}

TEST(TaskOverhead, IsPaidByEveryTaskAndMoreWithACounter) {
  SimMachine machine = machine_by_hand();
  machine.task_overhead = {20};
  machine.counter_claim = {6};
  const std::vector<LooseTask> tasks(5, computes(10));
  EXPECT_NEAR(simulate_by_hand({tasks}, 0, machine, {1, Claim::fixed}).makespan.value, 5 * 20, 1e-9);
  EXPECT_NEAR(simulate_by_hand({tasks}, 0, machine, {1, Claim::counter}).makespan.value, 5 * 23, 1e-9);
}

}  // namespace
}  // namespace xs
