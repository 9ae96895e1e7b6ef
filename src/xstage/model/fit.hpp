#pragma once

#include "xstage/model/machine.hpp"
#include "xstage/model/samples.hpp"

// From burst samples to port parameters, and how well parameters tell samples.

namespace xs {

// Plain Burst-Gap, one port and worker count at a time: free issue time, drain and capacity that minimise the mean
// absolute relative error of the mean issue time over all patterns (NLopt's CRS2, then Sbplx;
// deterministic). Patterns that await a completion show the free issue and the capacity, those that do not show drain.
FittedPort fit_port(const PortSamples& samples, GigaHertz sm_clock);

// Mean over the patterns of |predicted - measured| / measured, of the mean issue time.
double mean_abs_rel_error(const PortParams& params, GigaHertz sm_clock, const std::vector<PatternSample>& patterns);

}  // namespace xs
