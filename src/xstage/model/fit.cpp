#include "xstage/model/fit.hpp"

#include <nlopt.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// The parameters as a point: logarithms, since all are positive over several decades.
struct Coordinate {
  const char* name;  // in the profile
  double guess;
  double least, most;  // beyond these the samples would contradict themselves
  void (*set)(PortParams&, double);
};

double error_of(double predicted, double measured) { return std::abs(predicted / measured - 1); }

// Positions in FitProblem::coordinates().
constexpr std::size_t kCapacity = 3, kWorkerCapacity = 4;
constexpr double kUnlimited = 1e10;  // worker_capacity_bytes: one worker finds all of the port

// What the samples show without a fit.
class FitProblem {
 public:
  FitProblem(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
             const FitContext& context)
      : samples_(samples.begin(), samples.end()), clock_(context.sm_clock) {
    names_.path = path;
    names_.dst = dst;
    names_.groups = context.sm_groups;
    names_.visible_latency = {0};
    double overhead = std::numeric_limits<double>::infinity(), latency = overhead;
    for (const auto& sample : samples_) {
      overhead = std::min(overhead, sample.mean_issue.value / 2);
      free_issue_ = {std::max(free_issue_.value, sample.pattern.bytes.value / sample.mean_issue.value)};
      if (sample.pattern.await == Completion::remote_visible) latency = std::min(latency, sample.mean_done.value);
    }
    throughput_ = longest_throughput();
    const auto add = [this](const char* name, double guess, double below, double above, auto set) {
      coordinates_.push_back({name, std::log(guess), std::log(guess / below), std::log(guess * above), set});
    };
    const bool copies = path.starts_with("bulk") || path.starts_with("tensor");
    const bool stores_in_stage = path.starts_with("st") && slows_as_bursts_grow();
    add("burst_overhead_cycles", overhead, 20, 4, [](PortParams& p, double v) { p.burst_overhead = {v}; });
    add("free_issue_bytes_per_cycle", free_issue_.value * (stores_in_stage ? 1.5 : 1.1), 2, 2,
        [](PortParams& p, double v) { p.free_issue = {v}; });
    add("drain_bytes_per_ns", throughput_.value, 2, 4, [](PortParams& p, double v) { p.drain = {v}; });
    add("capacity_bytes", 2.5e6, 1000, 100, [](PortParams& p, double v) { p.capacity = {v}; });
    add("worker_capacity_bytes", 1e5, 100, 1e6, [](PortParams& p, double v) { p.worker_capacity = {v}; });
    if (std::isfinite(latency)) {
      add("visible_latency_ns", latency / clock_.value, 4, 2, [](PortParams& p, double v) { p.visible_latency = {v}; });
    }
    if (std::ranges::any_of(samples_, [](auto& sample) { return sample.pattern.await != Completion::issued; })) {
      add("disorder", 2.5, 25, 4, [](PortParams& p, double v) { p.disorder = v; });
    }
    if (copies || stores_in_stage) {
      add("engine_bytes_per_cycle", free_issue_.value * (copies ? 0.6 : 0.8), 4, 1.6,
          [](PortParams& p, double v) { p.engine = {v}; });
      add("engine_capacity_bytes", copies ? 32768 : 8192, 100, 10,
          [](PortParams& p, double v) { p.engine_capacity = {v}; });
    }
    std::set<int> workers;
    for (const auto& sample : samples_) workers.insert(sample.pattern.workers);
    if (*workers.rbegin() > 1) {
      if (!context.sm_groups.empty()) {
        add("group_fairness", 0.9, 20, 3, [](PortParams& p, double v) { p.group_fairness = v; });
      }
      add("spread", 0.35, 20, 5, [](PortParams& p, double v) { p.spread = v; });
    }
  }

  const std::vector<Coordinate>& coordinates() const { return coordinates_; }
  const std::vector<PatternSample>& samples() const { return samples_; }
  GigaHertz clock() const { return clock_; }
  BytesPerNano throughput() const { return throughput_; }

  // The usual guess, unless it tells the samples much worse than a port that holds what bursts into the empty stage
  // show, or than one that holds it whatever the number of workers.
  std::vector<double> guess() const {
    std::vector<double> usual;
    for (const auto& coordinate : coordinates_) usual.push_back(coordinate.guess);
    const auto& range = coordinates_[kCapacity];
    const double seen = std::clamp(std::log(capacity_seen().value), range.least, range.most);
    auto best = usual;
    double least = 0.5 * objective(usual.data());
    for (const double capacity : {usual[kCapacity], seen}) {
      for (const double worker_capacity : {usual[kWorkerCapacity], std::log(kUnlimited)}) {
        auto other = usual;
        other[kCapacity] = capacity, other[kWorkerCapacity] = worker_capacity;
        if (const double error = objective(other.data()); error < least) best = other, least = error;
      }
    }
    return best;
  }

  PortParams at(const double* x) const {
    PortParams params = names_;
    for (std::size_t i = 0; i < coordinates_.size(); ++i) coordinates_[i].set(params, std::exp(x[i]));
    params.engine = min(params.engine, params.free_issue);
    return params;
  }

  double objective(const double* x) const {
    // The completion's time is less well known than the issue's: its weight only serves to tell latency and disorder.
    constexpr double kDoneWeight = 0.05;
    const auto params = at(x);
    double sum = 0;
    for (const auto& sample : samples_) {
      const auto told = predict(params, clock_, sample.pattern);
      sum += error_of(told.mean_issue.value, sample.mean_issue.value);
      if (sample.mean_done > Cycles{0}) sum += kDoneWeight * error_of(told.mean_done.value, sample.mean_done.value);
    }
    return sum / static_cast<double>(samples_.size());
  }

 private:
  // What had entered and not drained when a burst into the empty stage had issued: median of those that stalled.
  Bytes capacity_seen() const {
    std::vector<double> seen;
    for (const auto& sample : samples_) {
      const auto& pattern = sample.pattern;
      const Bytes left = pattern.bytes * pattern.workers - throughput_ * (sample.mean_issue / clock_);
      const bool stalled = pattern.bytes.value / sample.mean_issue.value < 0.5 * free_issue_.value;
      if (pattern.await == Completion::remote_visible && stalled && left > Bytes{0}) seen.push_back(left.value);
    }
    if (seen.empty()) return {std::exp(coordinates_[kCapacity].guess)};
    const auto middle = seen.begin() + static_cast<std::ptrdiff_t>(seen.size() / 2);
    std::ranges::nth_element(seen, middle);
    return {*middle};
  }

  // Whether the fewest workers, which fill the port last, bring in their largest burst slower than a smaller one: the
  // overhead alone would do the opposite.
  bool slows_as_bursts_grow() const {
    const auto by_workers = [](const PatternSample& sample) { return sample.pattern.workers; };
    const int fewest = std::ranges::min(samples_, {}, by_workers).pattern.workers;
    double fastest = 0, largest = 0, of_largest = 0;
    for (const auto& sample : samples_) {
      if (sample.pattern.workers != fewest) continue;
      const double bytes = sample.pattern.bytes.value, rate = bytes / sample.mean_issue.value;
      fastest = std::max(fastest, rate);
      if (bytes > largest) largest = bytes, of_largest = rate;
    }
    return of_largest < 0.95 * fastest;
  }

  // Of the longest pattern, in which what fits into the stage matters least.
  BytesPerNano longest_throughput() const {
    double longest = 0;
    BytesPerNano fastest{0};
    for (const auto& sample : samples_) {
      const auto& pattern = sample.pattern;
      const Bytes burst = pattern.bytes * pattern.workers;
      const auto rate = burst / ((sample.mean_issue + sample.mean_done + pattern.gap) / clock_);
      const double total = (burst * pattern.bursts).value;
      if (total > longest || (total == longest && rate > fastest)) longest = total, fastest = rate;
    }
    return fastest;
  }

  std::vector<PatternSample> samples_;
  GigaHertz clock_;
  PortParams names_;
  BytesPerNano throughput_;
  BytesPerCycle free_issue_{0};  // the fastest seen
  std::vector<Coordinate> coordinates_;
};

// Sbplx from `x`, which it moves to the minimum; returns the objective there.
double minimise(const FitProblem& problem, std::vector<double>& x, const FitProgress& progress) {
  constexpr int kEvaluations = 600;
  struct Call {
    const FitProblem& problem;
    const FitProgress& progress;
    int count = 0;
  } call{problem, progress};
  const auto evaluate = [](unsigned, const double* at, double*, void* data) {
    auto& own = *static_cast<Call*>(data);
    if (own.progress) own.progress(static_cast<double>(++own.count) / kEvaluations);
    return own.problem.objective(at);
  };
  const std::unique_ptr<nlopt_opt_s, void (*)(nlopt_opt)> optimizer(
      nlopt_create(NLOPT_LN_SBPLX, static_cast<unsigned>(x.size())), nlopt_destroy);
  std::vector<double> least, most;
  for (const auto& coordinate : problem.coordinates()) {
    least.push_back(coordinate.least);
    most.push_back(coordinate.most);
  }
  nlopt_set_min_objective(optimizer.get(), evaluate, &call);
  nlopt_set_lower_bounds(optimizer.get(), least.data());
  nlopt_set_upper_bounds(optimizer.get(), most.data());
  nlopt_set_initial_step1(optimizer.get(), 0.15);
  nlopt_set_xtol_rel(optimizer.get(), 1e-6);
  nlopt_set_maxeval(optimizer.get(), kEvaluations);
  double error = 0;
  const auto result = nlopt_optimize(optimizer.get(), x.data(), &error);
  // Round-off near the optimum is not a failure: the point found so far is the answer.
  check(result > 0 || result == NLOPT_ROUNDOFF_LIMITED, "fit: NLopt ended with code {}", static_cast<int>(result));
  return error;
}

// 95 % intervals at the minimum: of least squares on the logarithms of the issue and completion times, the residuals of
// one burst and gap counted as one (they share what the model gets wrong).
std::vector<FittedParameter> intervals(const FitProblem& problem, const std::vector<double>& x) {
  const auto& samples = problem.samples();
  const auto size = static_cast<Eigen::Index>(x.size()), count = static_cast<Eigen::Index>(samples.size());
  const auto told = [&](const std::vector<double>& at) {
    const auto params = problem.at(at.data());
    Eigen::VectorXd logs(2 * count);
    for (Eigen::Index i = 0; i < count; ++i) {
      const auto& sample = samples[static_cast<std::size_t>(i)];
      const auto prediction = predict(params, problem.clock(), sample.pattern);
      logs[2 * i] = std::log(prediction.mean_issue / sample.mean_issue);
      const bool done = sample.mean_done > Cycles{0} && prediction.mean_done > Cycles{0};
      logs[2 * i + 1] = done ? 0.2 * std::log(prediction.mean_done / sample.mean_done) : 0;
    }
    return logs;
  };
  constexpr double kStep = 0.02;
  Eigen::MatrixXd slopes(2 * count, size);
  for (Eigen::Index j = 0; j < size; ++j) {
    auto above = x, below = x;
    above[static_cast<std::size_t>(j)] += kStep;
    below[static_cast<std::size_t>(j)] -= kStep;
    slopes.col(j) = (told(above) - told(below)) / (2 * kStep);
  }
  const Eigen::VectorXd residuals = told(x);
  std::map<std::pair<double, double>, Eigen::VectorXd> clusters;
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto& pattern = samples[static_cast<std::size_t>(i)].pattern;
    auto& sum =
        clusters.try_emplace({pattern.bytes.value, pattern.gap.value}, Eigen::VectorXd::Zero(size)).first->second;
    for (const auto row : {2 * i, 2 * i + 1}) sum += slopes.row(row).transpose() * residuals[row];
  }
  Eigen::MatrixXd scatter = Eigen::MatrixXd::Zero(size, size);
  for (const auto& [key, sum] : clusters) scatter += sum * sum.transpose();
  // A parameter on which nothing depends makes the information singular; a little prior, e^±3, keeps it invertible and
  // shows as an interval that wide.
  constexpr double kPriorSigma = 3;
  Eigen::MatrixXd information = slopes.transpose() * slopes;
  const double noise = std::max(1e-12, residuals.squaredNorm() / static_cast<double>(2 * count));
  information.diagonal().array() += noise / (kPriorSigma * kPriorSigma);
  scatter.diagonal().array() += noise * noise / (kPriorSigma * kPriorSigma);
  const Eigen::MatrixXd inverse = information.inverse();
  const Eigen::MatrixXd covariance = inverse * scatter * inverse;
  std::vector<FittedParameter> parameters;
  for (Eigen::Index j = 0; j < size; ++j) {
    const auto index = static_cast<std::size_t>(j);
    const auto& coordinate = problem.coordinates()[index];
    const double half = 1.96 * std::sqrt(std::max(0.0, covariance(j, j)));
    // A valley as flat as a factor of 2 either way, or a minimum at the edge of what was searched, tells nothing.
    const bool at_edge = x[index] < coordinate.least + 1e-3 || x[index] > coordinate.most - 1e-3;
    parameters.push_back({coordinate.name, std::exp(x[index]), std::exp(x[index] - half), std::exp(x[index] + half),
                          half < std::log(2) && !at_edge});
  }
  return parameters;
}

}  // namespace

double mean_abs_rel_error(const PortParams& params, GigaHertz sm_clock, std::span<const PatternSample> samples) {
  double sum = 0;
  for (const auto& sample : samples) {
    sum += error_of(predict(params, sm_clock, sample.pattern).mean_issue.value, sample.mean_issue.value);
  }
  return sum / static_cast<double>(samples.size());
}

FittedPort fit_port(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                    const FitContext& context, const FitProgress& progress) {
  const FitProblem problem(samples, path, dst, context);
  auto x = problem.guess();
  minimise(problem, x, progress);
  FittedPort port;
  port.params = problem.at(x.data());
  port.num_patterns = static_cast<int>(samples.size());
  port.mean_abs_rel_error = mean_abs_rel_error(port.params, context.sm_clock, samples);
  port.parameters = intervals(problem, x);
  // Does the stall explain anything? If the same port without it tells the samples as well, they do not identify it.
  PortParams never_full = port.params;
  never_full.capacity = never_full.worker_capacity = {1e18};
  const double free_error = mean_abs_rel_error(never_full, context.sm_clock, samples);
  // And a port that drains as fast as its workers can issue never fills.
  int most_workers = 0;
  Bytes largest{0};
  for (const auto& sample : samples) {
    most_workers = std::max(most_workers, sample.pattern.workers);
    largest = max(largest, sample.pattern.bytes * sample.pattern.workers);
  }
  const BytesPerNano all_workers = port.params.free_issue * context.sm_clock * most_workers;
  port.saturated = free_error > port.mean_abs_rel_error + 0.01 && port.params.drain < 0.9 * all_workers;
  if (!port.saturated) {
    port.params.drain = problem.throughput();
    port.params.capacity = largest;
    port.params.worker_capacity = {1e18};
    port.mean_abs_rel_error = mean_abs_rel_error(port.params, context.sm_clock, samples);
    // The intervals are those of a fuller port.
    std::erase_if(port.parameters, [](const FittedParameter& parameter) {
      return parameter.name == "drain_bytes_per_ns" || parameter.name == "capacity_bytes" ||
             parameter.name == "worker_capacity_bytes" || parameter.name == "spread" ||
             parameter.name == "group_fairness" || parameter.name == "disorder";
    });
  }
  return port;
}

}  // namespace xs
