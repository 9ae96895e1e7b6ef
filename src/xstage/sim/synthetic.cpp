#include "xstage/sim/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "xstage/core/csv.hpp"
#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

namespace xs {

std::vector<SyntheticRun> read_synthetic_runs(const std::filesystem::path& file) {
  return parse_synthetic_runs(read_text(file), file.string());
}

std::vector<SyntheticRun> parse_synthetic_runs(std::string text, const std::string& name) {
  const auto csv = Csv::parse(std::move(text), name);
  constexpr std::int64_t kMost = 1 << 24;
  std::vector<SyntheticRun> runs;
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    const auto whole = [&](const char* column) { return csv.integer(row, csv.column(column), 1, kMost); };
    const auto micros = [&](const char* column) {
      return Nanos{csv.number(row, csv.column(column), 1e-3, 1e12) * 1e3};
    };
    SyntheticRun run;
    run.dst = csv.text(row, csv.column("dst"));
    run.num_sms = static_cast<int>(whole("num_sms"));
    run.hidden = whole("hidden");
    run.intermediate = whole("intermediate");
    run.num_blocks = static_cast<std::int32_t>(whole("num_blocks"));
    try {
      run.order = parse_order(std::string(csv.text(row, csv.column("schedule"))), {1, run.num_sms});
      run.claim = parse_claim(std::string(csv.text(row, csv.column("claim"))));
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}", csv.where(row), error.what());
    }
    run.measured = micros("us");
    run.measured_local = micros("local_us");
    runs.push_back(std::move(run));
  }
  return runs;
}

SyntheticPrediction predict_synthetic(const SyntheticRun& run, const Machine& machine) {
  SyntheticShape shape;
  shape.hidden = run.hidden;
  shape.intermediate = run.intermediate;
  shape.num_blocks = run.num_blocks;
  shape.linear1_bytes = 8192;
  shape.linear2_bytes = 28672;
  // The spins are as long as FP8 products. What a tile costs beyond them is the kernel's own and was read off the
  // control, stores to own memory: hand-over between warps, a claim's atomic, a release to the other SMs.
  SimMachine sim{machine.sm_clock, {4783}, {std::numeric_limits<double>::infinity()}, machine.port("st16", run.dst)};
  sim.task_overhead = {1200};
  sim.counter_claim = {500};
  sim.own_raise = {1000};
  SimOptions options;
  options.workers_per_rank = run.num_sms;
  options.claim = run.claim;
  options.tiles_in_flight = 2;
  options.record_spans = false;
  SyntheticPrediction prediction;
  prediction.run = run;
  const auto timeline = simulate(SyntheticProblem(shape).schedule(run.order), sim, options);
  prediction.predicted = timeline.makespan;
  prediction.breakdown = breakdown_by_rank(timeline)[0];
  shape.remote = false;
  prediction.predicted_local = simulate(SyntheticProblem(shape).schedule(run.order), sim, options).makespan;
  return prediction;
}

namespace {

constexpr double kCloseEnough = 0.03;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<SyntheticChoice> choices_of(const std::vector<SyntheticPrediction>& predictions) {
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<const SyntheticPrediction*>> shapes;
  for (const auto& prediction : predictions) {
    const auto& run = prediction.run;
    shapes[{run.dst, run.hidden, run.intermediate}].push_back(&prediction);
  }
  std::vector<SyntheticChoice> choices;
  for (const auto& [shape, of_shape] : shapes) {
    const auto best = *std::ranges::min_element(of_shape, {}, [](auto* one) { return one->run.measured; });
    const auto chosen = *std::ranges::min_element(of_shape, {}, [](auto* one) { return one->predicted; });
    const auto& [dst, hidden, intermediate] = shape;
    choices.push_back({dst, hidden, intermediate, best->run, chosen->run});
  }
  return choices;
}

}  // namespace

SyntheticSummary summarize(const std::vector<SyntheticPrediction>& predictions) {
  std::vector<double> errors, local_errors;
  for (const auto& prediction : predictions) {
    errors.push_back(std::abs(prediction.error()));
    local_errors.push_back(std::abs(prediction.local_error()));
  }
  SyntheticSummary summary{median(errors), median(local_errors), choices_of(predictions), 0};
  for (const auto& choice : summary.choices) summary.num_good_choices += choice.loss() <= kCloseEnough ? 1 : 0;
  return summary;
}

}  // namespace xs
