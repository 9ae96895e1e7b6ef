#include "xstage/sim/moe_machine.hpp"

#include <algorithm>

namespace xs {

SimMachine moe_kernel_machine(const Machine& machine, const std::string& dst, int workers) {
  SimMachine sim = sim_machine(machine, "bf16", "st16", dst, workers);
  // Read off the kernel's stamps (H200): what a tile waits for its first operands and for its hand-over to the warps
  // that store.
  sim.task_overhead = {3000};
  return sim;
}

}  // namespace xs
