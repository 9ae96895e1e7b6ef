#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "xstage/model/machine.hpp"
#include "xstage/plan/synthetic_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Predictions against a kernel that was really run: the two linears of an MoE layer as timed spins with real remote
// stores and real flags (data/README.md). One spinning warp and eight storing ones, two tiles in flight.

namespace xs {

struct SyntheticRun {
  std::string dst;
  int num_sms = 0;
  std::int64_t hidden = 0, intermediate = 0;
  std::int32_t num_blocks = 0;
  Order order;
  Claim claim = Claim::fixed;
  Nanos measured, measured_local;  // the same with stores to the own memory: the control
};

// Columns: dst, num_sms, hidden, intermediate, num_blocks, schedule, claim, us, local_us. At least one row.
std::vector<SyntheticRun> read_synthetic_runs(const std::filesystem::path& file);
// `name` says in errors where the text came from.
std::vector<SyntheticRun> parse_synthetic_runs(std::string text, const std::string& name);

struct SyntheticPrediction {
  SyntheticRun run;
  Nanos predicted, predicted_local;
  Breakdown breakdown;
  double error() const { return predicted / run.measured - 1; }
  double local_error() const { return predicted_local / run.measured_local - 1; }
};
SyntheticPrediction predict_synthetic(const SyntheticRun& run, const Machine& machine);

// One shape on one link: the order that the prediction would choose, against the measured best.
struct SyntheticChoice {
  std::string dst;
  std::int64_t hidden = 0, intermediate = 0;
  SyntheticRun best;    // measured
  SyntheticRun chosen;  // fastest as predicted
  double loss() const { return chosen.measured / best.measured - 1; }
};

struct SyntheticSummary {
  double median_error = 0;  // absolute, over all runs
  double median_local_error = 0;
  std::vector<SyntheticChoice> choices;
  int num_good_choices = 0;  // the best, or within 3 % of it
};
// Of at least one prediction.
SyntheticSummary summarize(const std::vector<SyntheticPrediction>& predictions);

}  // namespace xs
