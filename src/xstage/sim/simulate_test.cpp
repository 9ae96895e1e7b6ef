#include "xstage/sim/simulate.hpp"

#include <gtest/gtest.h>

#include "xstage/core/bucket.hpp"
#include "xstage/core/test_support.hpp"
#include "xstage/sim/by_hand.hpp"

// The simulator against closed forms, on schedules written by hand.

namespace xs {
namespace {

Timeline run(std::vector<std::vector<LooseTask>> ranks, std::int32_t num_flags = 0, int workers = 1,
             Claim claim = Claim::fixed, const SimMachine& on = machine_by_hand()) {
  return simulate_by_hand(std::move(ranks), num_flags, on, {workers, claim, false});
}

TEST(Simulate, OneWorkerComputesForTheSumOfItsTasks) {
  const auto timeline = run({{computes(3), computes(5), computes(0.25)}});
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 8.25);
  ASSERT_EQ(timeline.spans.size(), 3u);
  expect_span(timeline.spans[1], SpanKind::compute, 3, 8);
  EXPECT_EQ(timeline.spans[1].claim, 1);
  EXPECT_EQ(timeline.spans[1].task, (Task{TaskKind::dispatch, 1, 0}));
}

TEST(Simulate, WorkersShareEqualTasksInRounds) {
  for (int tasks = 1; tasks <= 12; ++tasks) {
    for (int workers = 1; workers <= 5; ++workers) {
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        const std::vector<LooseTask> rank(static_cast<std::size_t>(tasks), computes(3));
        EXPECT_DOUBLE_EQ(run({rank, rank}, 0, workers, claim).makespan.value, 3 * ceil_div(tasks, workers))
            << tasks << " tasks, " << workers << " workers";
      }
    }
  }
}

TEST(Simulate, ATileWhoseOperandsComeSlowlyStallsBeforeItComputes) {
  SimMachine slow = machine_by_hand();
  slow.memory = {4};
  const auto timeline = run({{{.work = {80, 400}}, {.work = {80, 16}}, {.work = {0, 8}}}}, 0, 1, Claim::fixed, slow);
  ASSERT_EQ(timeline.spans.size(), 4u);
  expect_span(timeline.spans[0], SpanKind::operand_stall, 0, 90);
  expect_span(timeline.spans[1], SpanKind::compute, 90, 100);
  expect_span(timeline.spans[2], SpanKind::compute, 100, 110);  // operands come faster than products need them
  expect_span(timeline.spans[3], SpanKind::operand_stall, 110, 112);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 112);
}

TEST(Simulate, ABurstThatFitsCostsItsFreeIssueTime) {
  // 3 ns overhead, 400 B at 20 B/ns; 360 B are then outstanding and take 180 ns, and 7 more to be visible.
  const auto timeline = run({{{.sends = {{1, 400}}}}, {}});
  ASSERT_EQ(timeline.spans.size(), 1u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 23);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 23 + 180 + 7);
  EXPECT_DOUBLE_EQ(timeline.link_busy[0].value, 200);
  EXPECT_DOUBLE_EQ(timeline.link_busy[1].value, 0);
}

TEST(Simulate, WhatDrainsWhileOthersComputeIsHidden) {
  // The first worker's burst drains from 3 to 203 ns; the second of two workers computes until 100.
  const auto timeline = run({{{.sends = {{1, 400}}}, {.work = {800, 0}}}, {}}, 0, 2);
  EXPECT_DOUBLE_EQ(timeline.link_busy[0].value, 200);
  EXPECT_DOUBLE_EQ(timeline.link_hidden[0].value, 97.0 / 2);
  EXPECT_DOUBLE_EQ(breakdown(timeline).overlap_ratio, 97.0 / 2 / 200);
}

TEST(Simulate, ABurstThatFillsThePortStallsItsSender) {
  // Full after 600 / (20 - 2) ns; the rest of 1000 B enters at 2 B/ns.
  const double full = 600.0 / 18, end = 3 + full + (1000 - 20 * full) / 2;
  const auto timeline = run({{{.sends = {{1, 1000}}}}, {}});
  ASSERT_EQ(timeline.spans.size(), 2u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 53);
  expect_span(timeline.spans[1], SpanKind::sender_stall, 53, end);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, end + 300 + 7);
}

TEST(Simulate, BurstsToSeveralPeersAreOneBurstOfTheirSum) {
  const auto timeline = run({{{.sends = {{1, 150}, {2, 250}}}}, {}, {}});
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 23 + 180 + 7);
}

TEST(Simulate, ALocalStoreCostsItsFreeIssueTimeAndNoPort) {
  const auto timeline = run({{{.sends = {{0, 4000}}}}});
  ASSERT_EQ(timeline.spans.size(), 1u);
  expect_span(timeline.spans[0], SpanKind::compute, 0, 200);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 200);
  EXPECT_EQ(timeline.link_busy[0].value, 0);
}

TEST(Simulate, LocalStoresIssueBeforeRemoteOnes) {
  const auto timeline = run({{{.sends = {{1, 400}, {0, 100}}}}, {}});
  expect_span(timeline.spans.at(0), SpanKind::compute, 0, 5 + 23);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 5 + 23 + 180 + 7);
}

struct Pattern {
  double bytes;
  double gap_ns;
};
constexpr Pattern kPatterns[] = {{100, 500}, {400, 30}, {400, 300}, {900, 10}, {900, 200}, {5000, 50}};
constexpr int kBursts = 20;

// The end of the last issue.
double last_issue(const Timeline& timeline) {
  double end = 0;
  for (const auto& span : timeline.spans) end = std::max(end, span.end.value);
  return end;
}

TEST(Simulate, OneWorkerThatComputesAndSendsInTurnIsOneBucket) {
  const SimMachine on = machine_by_hand();
  for (const auto& [bytes, gap] : kPatterns) {
    std::vector<LooseTask> tasks(kBursts, {.work = {8 * gap, 0}, .sends = {{1, static_cast<std::int64_t>(bytes)}}});
    Bucket bucket;
    const BucketRates rates{on.port.free_issue * on.sm_clock, on.port.drain, on.port.capacity};
    Nanos end{0};
    for (int i = 0; i < kBursts; ++i) {
      const Nanos quiet = Nanos{gap} + on.port.burst_overhead / on.sm_clock;
      bucket.pass(rates, quiet);
      end += quiet + bucket.issue(rates, {bytes});
    }
    const auto timeline = run({tasks, {}});
    EXPECT_NEAR(last_issue(timeline), end.value, 1e-12 * end.value) << bytes << " B, gap " << gap;
    const Nanos visible = end + bucket.outstanding / rates.drain + on.port.visible_latency;
    EXPECT_NEAR(timeline.makespan.value, visible.value, 1e-12 * visible.value);
  }
}

TEST(Simulate, WorkersInStepArePredictedByTheirShareOfThePort) {
  const SimMachine on = machine_by_hand();
  for (const int workers : {1, 2, 3, 4, 8}) {
    for (const auto& [bytes, gap] : kPatterns) {
      const std::vector<LooseTask> tasks(static_cast<std::size_t>(kBursts * workers),
                                         {.work = {8 * gap, 0}, .sends = {{1, static_cast<std::int64_t>(bytes)}}});
      const auto predicted =
          predict(on.port, on.sm_clock, {workers, {bytes}, Nanos{gap} * on.sm_clock, kBursts, Completion::issued});
      const Nanos end = kBursts * (Nanos{gap} + predicted.mean_issue / on.sm_clock);
      const auto timeline = run({tasks, {}}, 0, workers);
      SCOPED_TRACE(fmt::format("{} workers, {} B, gap {} ns", workers, bytes, gap));
      EXPECT_NEAR(last_issue(timeline), end.value, 1e-9 * end.value);
      EXPECT_NEAR(timeline.makespan.value, (end + predicted.visible_after_last).value, 1e-9 * end.value);
      EXPECT_NEAR(timeline.link_busy[0].value, kBursts * workers * bytes / on.port.drain.value, 1e-9 * end.value);
    }
  }
}

TEST(Simulate, AReceiverStartsWhenTheLastByteIsVisible) {
  const auto timeline =
      run({{{.work = {80, 0}, .raises = {{1, 0, 1}}, .sends = {{1, 400}}}}, {{.work = {80, 0}, .waits = {{0, 1}}}}}, 1);
  const auto spans = spans_of(timeline, 1, 0);
  ASSERT_EQ(spans.size(), 2u);
  const double visible = 10 + 23 + 180 + 7;  // compute, issue, outstanding over drain, latency
  expect_span(spans[0], SpanKind::dependency, 0, visible);
  expect_span(spans[1], SpanKind::compute, visible, visible + 10);
}

TEST(Simulate, ALaterBurstDelaysNoEarlierOne) {
  // The second burst begins before the first is visible; first in, first out keeps the first's time.
  const auto timeline = run(
      {{{.raises = {{1, 0, 1}}, .sends = {{1, 400}}}, {.sends = {{1, 100}}}}, {{.work = {80, 0}, .waits = {{0, 1}}}}},
      1);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 23 + 180 + 7);
}

TEST(Simulate, TheOwnRankSeesItsDataWhenTheStoreHasIssued) {
  // Worker 0 stores locally for 20 ns; worker 1 waits for it.
  const auto timeline =
      run({{{.raises = {{0, 0, 1}}, .sends = {{0, 400}}}, {.work = {80, 0}, .waits = {{0, 1}}}}}, 1, 2);
  expect_span(spans_of(timeline, 0, 1).at(0), SpanKind::dependency, 0, 20);
}

TEST(Simulate, ARaiseWithoutBytesIsSeenAtOnce) {
  const auto timeline = run({{{.work = {80, 0}, .raises = {{1, 0, 1}}}}, {{.work = {80, 0}, .waits = {{0, 1}}}}}, 1);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 10);
}

TEST(Simulate, ATaskStartsWhenTheLastOfItsFlagsIsComplete) {
  // Rank 0 raises flag 0 after 10 and 40 ns, flag 1 after 20.
  const auto raises = [](double nanos, std::int32_t flag) {
    LooseTask task = computes(nanos);
    task.raises = {{1, flag, 1}};
    return task;
  };
  const auto timeline =
      run({{raises(10, 0), raises(10, 1), raises(20, 0)}, {{.work = {80, 0}, .waits = {{1, 1}, {0, 2}}}}}, 2);
  expect_span(spans_of(timeline, 1, 0).at(0), SpanKind::dependency, 0, 40);
}

TEST(Simulate, StaticClaimsKeepTheirWorkerAndCounterClaimsTakeTheNextFreeOne) {
  const std::vector<LooseTask> tasks{computes(10), computes(1), computes(1), computes(1)};
  const auto worker_of = [](const Timeline& timeline, std::int64_t claim) {
    return spans_of(timeline, 0, claim).at(0).worker;
  };
  const auto fixed = run({tasks}, 0, 2, Claim::fixed);
  EXPECT_DOUBLE_EQ(fixed.makespan.value, 11);
  EXPECT_EQ(worker_of(fixed, 2), 0);
  EXPECT_EQ(worker_of(fixed, 3), 1);
  const auto counter = run({tasks}, 0, 2, Claim::counter);
  EXPECT_DOUBLE_EQ(counter.makespan.value, 10);
  EXPECT_EQ(worker_of(counter, 2), 1);
  EXPECT_EQ(worker_of(counter, 3), 1);
}

// Workers that become free in the same instant take the next tasks in the order in which they took the last ones.
TEST(Simulate, EqualTasksGoRoundTheWorkersAlsoThroughACounter) {
  const std::vector<LooseTask> tasks(40, {.work = {8, 0}, .sends = {{0, 20}}});
  for (const int workers : {2, 3, 5, 7}) {
    for (const auto& span : run({tasks}, 0, workers, Claim::counter).spans) {
      EXPECT_EQ(span.worker, span.claim % workers) << workers << " workers, claim " << span.claim;
    }
  }
}

TEST(Simulate, MoreWorkersThanTasksLeaveTheRestIdle) {
  const auto timeline = run({{computes(10), computes(20)}}, 0, 5);
  EXPECT_DOUBLE_EQ(timeline.makespan.value, 20);
  EXPECT_DOUBLE_EQ(breakdown(timeline).tail, 1 - 30.0 / 100);
}

TEST(Simulate, AnEmptyScheduleTakesNoTime) {
  const auto timeline = run({{}, {}});
  EXPECT_EQ(timeline.makespan, Nanos{0});
  EXPECT_TRUE(timeline.spans.empty());
  EXPECT_EQ(timeline.num_ranks, 2);
}

TEST(Simulate, AScheduleThatCannotFinishIsAnInternalErrorThatNamesTheRank) {
  const auto schedule = put_together(by_hand({{computes(1)}, {{.waits = {{0, 1}}}, computes(1)}}, 1));
  try {
    simulate(schedule, machine_by_hand(), {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_STREQ(error.what(), "simulate: rank 1 stopped after 0 of 2 tasks; the schedule was not checked");
  }
}

// The simulator and the checker agree on which schedules finish.
TEST(Simulate, FinishesExactlyWhatTheCheckerAccepts) {
  int rejected = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const auto schedule = random_waits(seed);
    const bool accepted = check(schedule).empty();
    rejected += accepted ? 0 : 1;
    for (const auto claim : {Claim::fixed, Claim::counter}) {
      for (int workers = 1; workers <= (accepted ? 3 : 1); ++workers) {
        const auto call = [&] { simulate(schedule, machine_by_hand(), {workers, claim, false}); };
        if (accepted) {
          EXPECT_NO_THROW(call()) << "seed " << seed;
        } else {
          EXPECT_THROW(call(), Error) << "seed " << seed;
        }
      }
    }
  }
  EXPECT_GT(rejected, 100);
  EXPECT_LT(rejected, 900);
}

TEST(Simulate, NoWorkerIsAUsageError) {
  expect_usage_error([] { simulate({}, machine_by_hand(), {0, Claim::fixed, false}); }, {"at least 1, found 0"});
}

TEST(SimMachine, OneWorkerHasItsShareOfMemoryAndTheWholePort) {
  Machine whole;
  whole.sm_clock = {1.5};
  whole.memory = {4000};
  whole.compute = {{"bf16", {1024}, ""}, {"fp8", {2048}, ""}};
  FittedPort port;
  port.params = machine_by_hand().port;
  port.params.path = "st16";
  port.params.dst = "nvlink";
  whole.ports = {port};
  const auto worker = sim_machine(whole, "fp8", "st16", "nvlink", 100);
  EXPECT_EQ(worker.sm_clock, GigaHertz{1.5});
  EXPECT_EQ(worker.rate, FlopsPerCycle{2048});
  EXPECT_EQ(worker.memory, BytesPerNano{40});
  EXPECT_EQ(worker.port.drain, port.params.drain);
  EXPECT_EQ(worker.port.capacity, port.params.capacity);
}

}  // namespace
}  // namespace xs
