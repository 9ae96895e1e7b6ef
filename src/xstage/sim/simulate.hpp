#pragma once

#include <vector>

#include "xstage/plan/order.hpp"
#include "xstage/plan/schedule.hpp"
#include "xstage/plan/timeline.hpp"
#include "xstage/sim/sim_machine.hpp"

// A schedule on a machine in virtual time. Deterministic: the same input gives the same timeline, byte for byte.
//
// Every rank has `workers` workers that claim its tasks in order. A task waits for its flags, then computes for
// max(flops / rate, operand bytes / the worker's share of memory bandwidth), then stores. Bytes for peers pass the
// rank's port (model::PortPool, which alone knows what a transfer costs), bytes for the own rank cost their free issue
// time. A worker goes on as soon as its last store issued, or at once while it has fewer than `tiles_in_flight` tiles
// whose stores have not; peers see the raise when the bytes are remote visible. Dispatch tasks may have warps of their
// own beside the workers (SimMachine::dispatch_issue), whose time is in no share.
//
// A link carries whatever leaves its rank: its workers' stores, what its copy engine moves, and what peers pull.

namespace xs {

// How one rank differs from the others.
struct RankCondition {
  Nanos start{0};           // its workers begin then
  double clock_factor = 1;  // of its SM clock: products and issue slow down, the link does not
};

struct SimOptions {
  int workers_per_rank = 1;
  Claim claim = Claim::fixed;
  bool record_levels = false;
  bool record_spans = true;               // without, a Timeline has only its totals
  int tiles_in_flight = 1;                // 2: the next tile computes while the one before stores
  std::vector<RankCondition> ranks = {};  // empty: all alike
};

// The schedule must have passed check().
Timeline simulate(const Schedule& schedule, const SimMachine& machine, const SimOptions& options);

}  // namespace xs
