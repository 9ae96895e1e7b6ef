#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "xstage/bench/moe_record.hpp"

namespace xs::bench {

// Of some cases: the planner's choice over expert waves by their heuristic.
struct GainSummary {
  std::size_t cases = 0;
  double geometric_mean = 1, most = 1, least = 1;
};

struct MoeSummary {
  GainSummary all, crowded;           // crowded: rho > 1
  std::size_t num_slower = 0;         // the choice takes more than 1 % longer than expert waves
  std::size_t num_near_best = 0;      // within 2 % of the best that was timed
  std::size_t num_near_bound = 0;     // within 8 % of max(rows to own memory, bytes / drain)
  double median_error = 0;            // of the choices' predicted times, absolute
  std::vector<std::size_t> outliers;  // cases whose choice is predicted more than 25 % wrong
};
MoeSummary summarize(std::span<const MoeRecord> records);

}  // namespace xs::bench
