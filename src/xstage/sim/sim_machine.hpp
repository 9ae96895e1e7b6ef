#pragma once

#include <optional>
#include <string>

#include "xstage/model/machine.hpp"

// A machine as the simulator sees it: what one rank's workers, its port and its memory do in what time.

namespace xs {

struct SimMachine {
  GigaHertz sm_clock;
  FlopsPerCycle rate;                          // of one worker
  BytesPerNano memory;                         // one worker's share; infinity: operands are free
  PortParams port;                             // of one rank, to its peers
  std::optional<PortParams> copy_engine = {};  // to the same link
  Nanos own_raise{0};                          // from a task's last store to its raises on the own rank
  Cycles task_overhead{0};                     // of every task: pipeline fill, hand-over to the storing warps
  Cycles counter_claim{0};                     // more, where tasks are claimed from a counter
  // Issue of warps beside each worker, which do the dispatch tasks that a rank begins with, worker w the tasks w,
  // w + workers, …; workers claim from those behind. None: workers do them, too.
  std::optional<BytesPerCycle> dispatch_issue = {};
};

// The machine as `workers` of its SMs see it.
SimMachine sim_machine(const Machine& machine, const std::string& dtype, const std::string& path,
                       const std::string& dst, int workers);
// The same as the GPU kernel of a mixture-of-experts layer uses it: bf16, 16-byte stores, warps of their own that
// dispatch, and what a tile costs beside its product. For problems as that kernel cuts them.
SimMachine moe_kernel_machine(const Machine& machine, const std::string& dst, int workers);

}  // namespace xs
