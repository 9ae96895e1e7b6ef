#include "xstage/model/hold_out.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

using BurstAndGap = std::pair<double, double>;

BurstAndGap burst_and_gap(const PatternSample& sample) {
  return {sample.pattern.bytes.value, sample.pattern.gap.value};
}

// The samples with `held(sample)`, as told by a fit of the others.
template <class Held>
void predict_from_others(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                         const FitContext& context, const FitProgress& progress, Held&& held,
                         std::vector<Cycles>& predicted) {
  std::vector<PatternSample> others;
  std::ranges::copy_if(samples, std::back_inserter(others), [&](const auto& sample) { return !held(sample); });
  const auto params = fit_port(others, path, dst, context, progress).params;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (held(samples[i])) predicted[i] = predict(params, context.sm_clock, samples[i].pattern).mean_issue;
  }
}

// The (bytes, gap) pairs dealt to parts, each part as told by a fit of the others.
std::vector<Cycles> tell_parts(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                               const FitContext& context, int folds, const FitProgress& progress) {
  require(folds >= 2 && can_hold_out(samples, folds), "hold-out: {} to {} has too few bursts and gaps for {} parts",
          path, dst, folds);
  std::map<BurstAndGap, int> fold_of;
  for (const auto& sample : samples) fold_of[burst_and_gap(sample)] = 0;
  int dealt = 0;
  for (auto& entry : fold_of) entry.second = dealt++ % folds;
  std::vector<Cycles> told(samples.size());
  for (int fold = 0; fold < folds; ++fold) {
    const auto part = [&](double done) {
      if (progress) progress((fold + done) / folds);
    };
    const auto is_held = [&](const PatternSample& sample) { return fold_of.at(burst_and_gap(sample)) == fold; };
    predict_from_others(samples, path, dst, context, part, is_held, told);
  }
  return told;
}

ErrorByWorkers errors_of(std::span<const PatternSample> samples, const std::vector<Cycles>& told) {
  ErrorByWorkers errors;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    errors.add(samples[i].pattern.workers, std::abs(told[i] / samples[i].mean_issue - 1));
  }
  return errors;
}

std::vector<Crossing> find_crossings(std::span<const PatternSample> samples, const std::vector<Cycles>& predicted,
                                     const PortParams& params, GigaHertz clock) {
  std::map<std::tuple<Crossing::Kind, int, double>, std::map<double, std::pair<double, double>>> points;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto& pattern = samples[i].pattern;
    if (pattern.await != Completion::issued) continue;
    const Cycles free = PortPool(params, clock, pattern.workers).free_time(pattern.bytes) * clock;
    const std::pair over{samples[i].mean_issue / free, predicted[i] / free};
    points[{Crossing::onset, pattern.workers, pattern.gap.value}][pattern.bytes.value] = over;
    if (pattern.gap == Cycles{0}) continue;  // a curve over the logarithm of gaps has no place for it
    points[{Crossing::recovery, pattern.workers, pattern.bytes.value}][pattern.gap.value] = over;
  }
  std::vector<Crossing> crossings;
  for (const auto& [key, by_x] : points) {
    const auto& [kind, workers, at] = key;
    std::vector<CurvePoint> measured, told;
    for (const auto& [x, over] : by_x) {
      measured.push_back({x, over.first});
      told.push_back({x, over.second});
    }
    const double where = crossing(kind, measured);
    if (where > 0) crossings.push_back({kind, workers, at, where, crossing(kind, told)});
  }
  return crossings;
}

}  // namespace

CrossingError PortHoldOut::error(Crossing::Kind kind) const {
  std::vector<double> errors;
  Mean mean;
  for (const auto& crossing : crossings) {
    if (crossing.kind != kind) continue;
    errors.push_back(std::abs(crossing.predicted / crossing.measured - 1));
    mean.add(errors.back());
  }
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  const auto half = errors.size() / 2;
  return {mean.count(), static_cast<int>(std::ranges::count_if(errors, [](double error) { return error <= 0.1; })),
          errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2, mean.value()};
}

bool can_hold_out(std::span<const PatternSample> samples, int folds) {
  std::set<BurstAndGap> pairs;
  for (const auto& sample : samples) pairs.insert(burst_and_gap(sample));
  return pairs.size() >= 2 * static_cast<std::size_t>(folds);
}

ErrorByWorkers held_out_error(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                              const FitContext& context, int folds, const FitProgress& progress) {
  return errors_of(samples, tell_parts(samples, path, dst, context, folds, progress));
}

PortHoldOut hold_out(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                     const FitContext& context, int folds, const FitProgress& progress) {
  std::set<int> inner;
  for (const auto& sample : samples) inner.insert(sample.pattern.workers);
  inner.erase(inner.begin());
  if (!inner.empty()) inner.erase(std::prev(inner.end()));

  const double all_fits = folds + static_cast<double>(inner.size()) + 1;
  double fits = 0;
  const auto one = [&](double done) {
    if (progress) progress((fits + done) / all_fits);
  };
  PortHoldOut port;
  port.path = path;
  port.dst = dst;
  port.num_patterns = static_cast<int>(samples.size());
  const auto held = tell_parts(samples, path, dst, context, folds, [&](double done) { one(folds * done); });
  fits += folds;
  port.held_out = errors_of(samples, held);
  for (const int workers : inner) {
    const auto is_held = [&](const PatternSample& sample) { return sample.pattern.workers == workers; };
    std::vector<Cycles> told(samples.size());
    predict_from_others(samples, path, dst, context, one, is_held, told);
    ++fits;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (is_held(samples[i])) port.left_out.add(workers, std::abs(told[i] / samples[i].mean_issue - 1));
    }
  }
  const auto fitted = fit_port(samples, path, dst, context, one);
  port.fitted_error = fitted.mean_abs_rel_error;
  port.crossings = find_crossings(samples, held, fitted.params, context.sm_clock);
  return port;
}

double crossing(Crossing::Kind kind, std::span<const CurvePoint> curve) {
  const double direction = kind == Crossing::onset ? 1 : -1;  // upwards over bytes, downwards over gaps
  const auto above = [&](const CurvePoint& point) { return direction * std::log(point.over_free / 1.1); };
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double before = above(curve[i - 1]), after = above(curve[i]);
    if (before > 0 || after <= 0) continue;
    const double from = std::log(curve[i - 1].x), to = std::log(curve[i].x);
    return std::exp(from + (to - from) * (before / (before - after)));
  }
  return 0;
}

}  // namespace xs
