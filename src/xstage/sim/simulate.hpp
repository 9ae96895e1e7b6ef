#pragma once

#include <optional>
#include <vector>

#include "xstage/model/machine.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/schedule.hpp"
#include "xstage/plan/timeline.hpp"

// A schedule on a machine in virtual time. Deterministic: the same input gives the same timeline, byte for byte.
//
// Every rank has `workers` workers that claim its tasks in order. A task waits for its flags, then computes for
// max(flops / rate, operand bytes / the worker's share of memory bandwidth), then stores. Bytes for peers pass the
// rank's port (model::PortPool, which alone knows what a transfer costs), bytes for the own rank cost their free issue
// time. A worker goes on as soon as its last store issued, or at once while it has fewer than `tiles_in_flight` tiles
// whose stores have not; peers see the raise when the bytes are remote visible.
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

struct SimMachine {
  GigaHertz sm_clock;
  FlopsPerCycle rate;                          // of one worker
  BytesPerNano memory;                         // one worker's share; infinity: operands are free
  PortParams port;                             // of one rank, to its peers
  std::optional<PortParams> copy_engine = {};  // to the same link
  Nanos own_raise{0};                          // from a task's last store to its raises on the own rank
  Cycles task_overhead{0};                     // of every task: pipeline fill, hand-over to the storing warps
  Cycles counter_claim{0};                     // more, where tasks are claimed from a counter
};

// The machine as `workers` of its SMs see it.
SimMachine sim_machine(const Machine& machine, const std::string& dtype, const std::string& path,
                       const std::string& dst, int workers);

// The schedule must have passed check().
Timeline simulate(const Schedule& schedule, const SimMachine& machine, const SimOptions& options);

}  // namespace xs
