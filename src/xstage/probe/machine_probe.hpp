#pragma once

#include <functional>
#include <string>
#include <vector>

#include "xstage/model/machine.hpp"
#include "xstage/probe/probe.hpp"

// All ports of a machine, measured and fitted.

namespace xs {

struct MachineProbe {
  Machine machine;
  std::string samples;  // of all ports, as read_samples() reads them
};

// Adds to `machine` the port of each target, in their order: measured one after the other, each made when its turn
// comes and gone before the next, then fitted side by side. `progress` gets what is done, 0 to 1.
MachineProbe probe_machine(Machine machine, const std::vector<std::function<ProbeTarget()>>& targets,
                           const ProbeOptions& options, const std::function<void(double)>& progress = {});

}  // namespace xs
