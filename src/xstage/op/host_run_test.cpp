#include "xstage/op/host_run.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/mem/run_ranks.hpp"

namespace xs {
namespace {

// `num_tasks` tasks, each of which waits for the one before it.
RankSchedule chain(int num_tasks) {
  RankSchedule schedule;
  for (int i = 0; i < num_tasks; ++i) {
    schedule.tasks.push_back({TaskKind::linear1, i, 0});
    schedule.work.push_back({0, 0});
    if (i > 0) schedule.waits.append({i - 1, 1});
    schedule.raises.append({0, i, 1});
    schedule.waits.end_row();
    schedule.raises.end_row();
    schedule.sends.end_row();
  }
  return schedule;
}

RankLog run(const RankSchedule& schedule, const HostRunOptions& options, const TaskBody& body) {
  Layout layout;
  const int num_flags = static_cast<int>(schedule.tasks.size());
  const auto region = Signals::reserve(layout, num_flags, 1);
  const World world(layout, 1);
  RankLog log;
  run_ranks(world, [&](Rank rank) {
    Signals signals(rank, region, num_flags, options.signals);
    log = run_schedule(schedule, rank, signals, options, body);
  });
  return log;
}

TEST(HostRun, WaitsOrderTasksOverWorkersAndClaims) {
  const auto schedule = chain(60);
  for (const auto claim : {Claim::fixed, Claim::counter}) {
    for (const int workers : {1, 2, 5}) {
      HostRunOptions options;
      options.claim = claim;
      options.workers_per_rank = workers;
      options.signals.faults.max_delay = Nanos{50e3};
      std::int64_t next = 0;  // not atomic: the waits alone order the bodies
      const auto log = run(schedule, options, [&](const Task& task, int) { ASSERT_EQ(task.block, next++); });
      EXPECT_EQ(next, 60);
      EXPECT_EQ(log.executed, schedule.tasks);
    }
  }
}

TEST(HostRun, SpansOfAWorkerDoNotOverlap) {
  HostRunOptions options;
  options.workers_per_rank = 3;
  options.signals.faults.max_delay = Nanos{20e3};
  const auto log = run(chain(40), options, [](const Task&, int) {});
  std::vector<Nanos> end(3);
  for (const auto& span : log.spans) {
    Nanos& last = end[static_cast<std::size_t>(span.worker)];
    EXPECT_LE(last, span.begin);
    EXPECT_LE(span.begin, span.end);
    last = span.end;
  }
}

TEST(HostRun, AFailingTaskStopsTheOtherWorkersWithItsOwnError) {
  HostRunOptions options;
  options.workers_per_rank = 4;
  const auto begin = std::chrono::steady_clock::now();
  try {
    run(chain(40), options, [](const Task& task, int) {
      if (task.block == 10) fail(ErrorKind::usage, "task 10 is broken");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "task 10 is broken");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // not the 30 s of a wait
}

TEST(HostRun, AScheduleThatCannotFinishEndsWithinTheTimeout) {
  auto schedule = chain(3);
  schedule.raises = {};
  for (int i = 0; i < 3; ++i) schedule.raises.end_row();
  HostRunOptions options;
  options.signals.timeout = Nanos{50e6};
  EXPECT_THROW(run(schedule, options, [](const Task&, int) {}), Error);
}

}  // namespace
}  // namespace xs
