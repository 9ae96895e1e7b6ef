#include "xstage/bench/moe_summary.hpp"

#include <algorithm>
#include <cmath>

namespace xs::bench {
namespace {

GainSummary summarize_gains(const std::vector<double>& gains) {
  GainSummary summary;
  summary.cases = gains.size();
  if (gains.empty()) return summary;
  double logs = 0;
  for (const double gain : gains) logs += std::log(gain);
  summary.geometric_mean = std::exp(logs / static_cast<double>(gains.size()));
  summary.most = std::ranges::max(gains);
  summary.least = std::ranges::min(gains);
  return summary;
}

}  // namespace

MoeSummary summarize(std::span<const MoeRecord> records) {
  constexpr double kSlower = 0.99, kNearBest = 1.02, kNearBound = 1.08, kOutlier = 0.25;
  MoeSummary summary;
  std::vector<double> all, crowded, errors;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto& record = records[i];
    all.push_back(record.gain());
    if (record.rho > 1) crowded.push_back(record.gain());
    summary.num_slower += record.gain() < kSlower ? 1 : 0;
    summary.num_near_best += record.over_best() <= kNearBest ? 1 : 0;
    summary.num_near_bound += record.over_bound() <= kNearBound ? 1 : 0;
    errors.push_back(std::abs(record.error()));
    if (errors.back() > kOutlier) summary.outliers.push_back(i);
  }
  summary.all = summarize_gains(all);
  summary.crowded = summarize_gains(crowded);
  if (!errors.empty()) {
    std::ranges::sort(errors);
    summary.median_error = errors[errors.size() / 2];
  }
  return summary;
}

}  // namespace xs::bench
