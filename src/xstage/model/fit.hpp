#pragma once

#include <functional>
#include <span>

#include "xstage/model/machine.hpp"
#include "xstage/model/samples.hpp"

// From burst samples to port parameters, and how well parameters tell samples.

namespace xs {

// What samples do not say about themselves.
struct FitContext {
  GigaHertz sm_clock;
  std::vector<int> sm_groups = {};  // Machine::sm_groups
};

using FitProgress = std::function<void(double done)>;  // 0 to 1

// One set of parameters for all worker counts of one path and destination: minimises the mean absolute relative error
// of the mean issue time over all patterns, with a little weight on the time until the awaited completion (NLopt's
// Sbplx over logarithms, from a guess that the samples give; deterministic). Intervals are those of least squares with
// residuals clustered by (bytes, gap), a sandwich estimate at the minimum.
FittedPort fit_port(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                    const FitContext& context, const FitProgress& progress = {});

// Mean over the patterns of |predicted - measured| / measured, of the mean issue time.
double mean_abs_rel_error(const PortParams& params, GigaHertz sm_clock, std::span<const PatternSample> samples);

}  // namespace xs
