#include "xstage/sim/sim_machine.hpp"

namespace xs {

SimMachine sim_machine(const Machine& machine, const std::string& dtype, const std::string& path,
                       const std::string& dst, int workers) {
  return {machine.sm_clock, machine.rate(dtype), machine.memory / workers, machine.port(path, dst)};
}

SimMachine moe_kernel_machine(const Machine& machine, const std::string& dst, int workers) {
  SimMachine sim = sim_machine(machine, "bf16", "st16", dst, workers);
  // Read off the kernel's stamps (H200): what a tile waits for its first operands and for its hand-over to the warps
  // that store.
  sim.task_overhead = {3000};
  // Two warps that copy a row of 14 KiB in 2 us each.
  sim.dispatch_issue = BytesPerCycle{7};
  return sim;
}

}  // namespace xs
