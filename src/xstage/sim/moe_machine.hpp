#pragma once

#include <string>

#include "xstage/model/machine.hpp"
#include "xstage/sim/simulate.hpp"

namespace xs {

// A machine as the GPU kernel of a mixture-of-experts layer uses `workers` of its SMs: bf16, 16-byte stores to `dst`,
// with what a tile costs beside its product. For simulate() and plan_moe() of a problem as that kernel cuts it.
SimMachine moe_kernel_machine(const Machine& machine, const std::string& dst, int workers);

}  // namespace xs
