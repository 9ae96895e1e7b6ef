#include "xstage/model/fit.hpp"

#include <nlopt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// Logarithms of overhead, free issue, drain, capacity: all positive, all over several decades.
using Point = std::array<double, 4>;

struct Problem {
  PortParams names;
  GigaHertz sm_clock;
  std::vector<PatternSample> patterns;

  PortParams at(const double* x) const {
    PortParams params = names;
    params.burst_overhead = {std::exp(x[0])};
    params.free_issue = {std::exp(x[1])};
    params.drain = {std::exp(x[2])};
    params.capacity = {std::exp(x[3])};
    return params;
  }
};

double objective(unsigned, const double* x, double*, void* data) {
  const auto& problem = *static_cast<const Problem*>(data);
  return mean_abs_rel_error(problem.at(x), problem.sm_clock, problem.patterns);
}

// What the samples show without a fit: the fastest burst, and the throughput of the longest pattern, in which what
// fits into the stage matters least.
Point first_guess(const Problem& problem) {
  double overhead = std::numeric_limits<double>::infinity(), free_issue = 0, longest = 0, drain = 0;
  for (const auto& sample : problem.patterns) {
    const double bytes = sample.pattern.bytes.value;
    overhead = std::min(overhead, sample.mean_issue.value / 2);
    free_issue = std::max(free_issue, bytes / sample.mean_issue.value);
    const Cycles period = sample.mean_issue + sample.mean_done + sample.pattern.gap;
    const double throughput = bytes * sample.pattern.workers / period.value;
    const double total = bytes * sample.pattern.bursts;
    if (total > longest || (total == longest && throughput > drain)) longest = total, drain = throughput;
  }
  const double capacity = 32768.0 * problem.names.workers;
  return {std::log(overhead), std::log(free_issue), std::log(drain * problem.sm_clock.value), std::log(capacity)};
}

// Around the guess, as factors: beyond these the samples would contradict themselves, and without bounds the search can
// end where the port never fills.
constexpr Point kBelow{20, 2, 2, 100};
constexpr Point kAbove{4, 2, 4, 100};

double minimise(const Problem& problem, nlopt_algorithm algorithm, const Point& guess, Point& x) {
  const std::unique_ptr<nlopt_opt_s, void (*)(nlopt_opt)> optimizer(nlopt_create(algorithm, x.size()), nlopt_destroy);
  Point lower = guess, upper = guess;
  for (std::size_t i = 0; i < x.size(); ++i) lower[i] -= std::log(kBelow[i]), upper[i] += std::log(kAbove[i]);
  nlopt_set_min_objective(optimizer.get(), objective, const_cast<Problem*>(&problem));
  nlopt_set_lower_bounds(optimizer.get(), lower.data());
  nlopt_set_upper_bounds(optimizer.get(), upper.data());
  nlopt_set_xtol_rel(optimizer.get(), 1e-6);
  nlopt_set_maxeval(optimizer.get(), 4000);
  double error = 0;
  const auto result = nlopt_optimize(optimizer.get(), x.data(), &error);
  // Round-off near the optimum is not a failure: the point found so far is the answer.
  check(result > 0 || result == NLOPT_ROUNDOFF_LIMITED, "fit: NLopt ended with code {}", static_cast<int>(result));
  return error;
}

// The smallest wait until remote visible is latency alone: so few bytes drain meanwhile.
Nanos visible_latency(const PortSamples& samples, GigaHertz sm_clock) {
  Nanos smallest{std::numeric_limits<double>::infinity()};
  for (const auto& sample : samples.patterns) {
    if (sample.pattern.await != Completion::remote_visible) continue;
    smallest = min(smallest, sample.mean_done / sm_clock);
  }
  return std::isfinite(smallest.value) ? smallest : Nanos{0};
}

}  // namespace

double mean_abs_rel_error(const PortParams& params, GigaHertz sm_clock, const std::vector<PatternSample>& patterns) {
  double sum = 0;
  for (const auto& sample : patterns) {
    const Cycles predicted = predict(params, sm_clock, sample.pattern).mean_issue;
    sum += std::abs(predicted / sample.mean_issue - 1);
  }
  return sum / static_cast<double>(patterns.size());
}

FittedPort fit_port(const PortSamples& samples, GigaHertz sm_clock) {
  Problem problem;
  problem.names.path = samples.path;
  problem.names.dst = samples.dst;
  problem.names.workers = samples.workers;
  problem.names.visible_latency = visible_latency(samples, sm_clock);
  problem.sm_clock = sm_clock;
  problem.patterns = samples.patterns;

  // The error has a valley wherever a burst just fits, so a global search finds the right one and a local one its
  // floor.
  const Point guess = first_guess(problem);
  Point best = guess;
  nlopt_srand(1);
  minimise(problem, NLOPT_GN_CRS2_LM, guess, best);
  FittedPort port;
  port.mean_abs_rel_error = minimise(problem, NLOPT_LN_SBPLX, guess, best);
  port.params = problem.at(best.data());
  port.num_patterns = static_cast<int>(problem.patterns.size());
  // Does the stall explain anything? If the same port without it tells the samples as well, they do not identify it.
  PortParams never_full = port.params;
  never_full.capacity = {1e18};
  const double free_error = mean_abs_rel_error(never_full, sm_clock, problem.patterns);
  // And a port that drains as fast as its workers can issue never fills.
  const BytesPerNano all_workers = port.params.free_issue * sm_clock * samples.workers;
  port.saturated = free_error > port.mean_abs_rel_error + 0.01 && port.params.drain < 0.9 * all_workers;
  if (!port.saturated) {
    Bytes largest{0};
    for (const auto& sample : problem.patterns) largest = max(largest, sample.pattern.bytes);
    port.params.drain = {std::exp(guess[2])};
    port.params.capacity = largest * samples.workers;
    port.mean_abs_rel_error = mean_abs_rel_error(port.params, sm_clock, problem.patterns);
  }
  return port;
}

}  // namespace xs
