#include <cmath>

#include "xstage/core/fuzz_support.hpp"
#include "xstage/model/samples.hpp"

namespace xs {

std::vector<std::string> fuzz_seeds() {
  return {first_lines("data/h200_burst_gap.csv", 8), first_lines("data/h200_bulk_copies.csv", 8),
          first_lines("data/h200_placement.csv", 8)};
}

void fuzz_one(std::string_view input) {
  const auto samples = if_accepted([&] { return parse_samples(std::string(input), "fuzz.csv"); });
  if (!samples) return;
  check(samples->num_sms >= 0 && samples->sm_clock.value >= 0 && std::isfinite(samples->sm_clock.value),
        "{} SMs at {} GHz", samples->num_sms, samples->sm_clock.value);
  std::size_t num_rows = 0;
  for (const auto& port : samples->ports) {
    num_rows += port.num_rows;
    for (const auto& sample : port.patterns) {
      check(sample.pattern.workers >= 1 && sample.pattern.bursts >= 1 && sample.pattern.bytes.value >= 1 &&
                sample.pattern.gap.value >= 0,
            "a pattern that cannot be run");
      check(sample.mean_issue.value > 0 && std::isfinite(sample.mean_issue.value) && sample.mean_done.value >= 0 &&
                std::isfinite(sample.mean_done.value),
            "mean times {} and {}", sample.mean_issue.value, sample.mean_done.value);
    }
  }
  check(num_rows == samples->num_rows, "{} of {} rows went into patterns", num_rows, samples->num_rows);
}

}  // namespace xs
