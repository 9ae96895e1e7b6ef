#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "xstage/plan/order.hpp"
#include "xstage/plan/schedule.hpp"
#include "xstage/plan/timeline.hpp"
#include "xstage/signal/signals.hpp"

// Runs any operator's schedule on one host rank with the real signals.

namespace xs {

struct HostRunOptions {
  RanksAre ranks_are = RanksAre::threads;
  std::optional<HostPortOptions> port = {};  // of every rank, to its peers
  int workers_per_rank = 1;                  // threads
  Claim claim = Claim::counter;
  SignalOptions signals;  // flag names are filled in by the operator; a task is a step of its faults, too
  int repeats = 1;        // layers through the same world, one epoch each
};

// What one rank did, by claim index.
struct RankLog {
  std::vector<Task> executed;
  std::vector<Span> spans;  // wall clock, since `start` of run_schedule
};

// The body executes one task: it computes, writes own memory and put()s. Called by worker `worker`'s thread after the
// task's waits; its raises follow.
using TaskBody = std::function<void(const Task& task, int worker)>;

// Returns when every task of the schedule is done. If a worker throws, the rank aborts the world and rethrows.
RankLog run_schedule(const RankSchedule& schedule, Rank rank, Signals& signals, const HostRunOptions& options,
                     const TaskBody& body);

// A rank's log in its symmetric memory, where the caller of run_ranks() finds it, whatever ranks are.
class LogRegions {
 public:
  LogRegions(Layout& layout, std::size_t max_tasks);
  void write(Rank rank, const RankLog& log) const;
  RankLog read(Rank rank) const;

 private:
  RegionId counts_, executed_, spans_;
};

}  // namespace xs
