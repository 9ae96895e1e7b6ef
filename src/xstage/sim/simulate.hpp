#pragma once

#include "xstage/model/machine.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/schedule.hpp"
#include "xstage/plan/timeline.hpp"

// A schedule on a machine in virtual time. Deterministic: the same input gives the same timeline, byte for byte.
//
// Every rank has `workers` workers that claim its tasks in order. A task waits for its flags, then computes for
// max(flops / rate, operand bytes / the worker's share of memory bandwidth), then stores: bytes for peers pass the
// rank's port (model::PortPool, which alone knows what a transfer costs), bytes for the own rank cost their free issue
// time. The worker goes on as soon as its last store issued; peers see the raise when the bytes are remote visible.

namespace xs {

struct SimOptions {
  int workers_per_rank = 1;
  Claim claim = Claim::fixed;
  bool record_levels = false;
};

struct SimMachine {
  GigaHertz sm_clock;
  FlopsPerCycle rate;   // of one worker
  BytesPerNano memory;  // one worker's share; infinity: operands are free
  PortParams port;      // of one rank, to its peers
};

// The machine as `workers` of its SMs see it.
SimMachine sim_machine(const Machine& machine, const std::string& dtype, const std::string& path,
                       const std::string& dst, int workers);

// The schedule must have passed check().
Timeline simulate(const Schedule& schedule, const SimMachine& machine, const SimOptions& options);

}  // namespace xs
