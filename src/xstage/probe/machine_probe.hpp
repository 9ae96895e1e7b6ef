#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "xstage/model/fit.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/probe/probe.hpp"

// What was measured of a port, fitted; all ports of a machine, measured and fitted.

namespace xs {

// Beside it, where there are patterns enough, two fits of half of them each: how well they tell the other half is the
// port's held_out_error.
FittedPort fit_probed(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                      const FitContext& context, const FitProgress& progress = {});

struct MachineProbe {
  Machine machine;
  std::string samples;  // of all ports, as read_samples() reads them
};

// Adds to `machine` the port of each target, in their order: measured one after the other, each made when its turn
// comes and gone before the next, then fitted side by side. `progress` gets what is done, 0 to 1.
MachineProbe probe_machine(Machine machine, const std::vector<std::function<ProbeTarget()>>& targets,
                           const ProbeOptions& options, const std::function<void(double)>& progress = {});

}  // namespace xs
