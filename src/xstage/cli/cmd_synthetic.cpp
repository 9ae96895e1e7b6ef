// simulate synthetic: predictions of a kernel with timed spins against what it took.

#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/report/table.hpp"
#include "xstage/sim/synthetic.hpp"

namespace xs::cli {
namespace {

struct SyntheticOptions {
  std::string runs;
  std::string machine = "h200";
  bool all = false;
  bool json = false;
};

std::string name(const SyntheticRun& run) { return to_string(run.order) + ", " + to_string(run.claim); }

void simulate_synthetic(const SyntheticOptions& options) {
  const auto machine = load_machine(options.machine);
  const auto runs = read_synthetic_runs(options.runs);
  Progress progress("simulate");
  std::vector<SyntheticPrediction> predictions;
  for (const auto& run : runs) {
    predictions.push_back(predict_synthetic(run, machine));
    progress.update(static_cast<double>(predictions.size()) / static_cast<double>(runs.size()));
  }
  const auto summary = summarize(predictions);
  if (options.json) {
    Json json = new_document("synthetic_prediction");
    json["machine"] = machine.name;
    json["rows"] = runs.size();
    json["median_abs_error"] = summary.median_error;
    json["median_abs_error_local"] = summary.median_local_error;
    json["best_or_within_3_percent"] = summary.num_good_choices;
    json["shapes"] = Json::array();
    for (const auto& choice : summary.choices) {
      json["shapes"].push_back({{"dst", choice.dst},
                                {"hidden", choice.hidden},
                                {"intermediate", choice.intermediate},
                                {"best", name(choice.best)},
                                {"best_us", choice.best.measured.value * 1e-3},
                                {"chosen", name(choice.chosen)},
                                {"chosen_us", choice.chosen.measured.value * 1e-3},
                                {"loss", choice.loss()}});
    }
    json["runs"] = Json::array();
    for (const auto& prediction : predictions) {
      const auto& run = prediction.run;
      json["runs"].push_back({{"dst", run.dst},
                              {"hidden", run.hidden},
                              {"intermediate", run.intermediate},
                              {"schedule", to_string(run.order)},
                              {"claim", to_string(run.claim)},
                              {"measured_us", run.measured.value * 1e-3},
                              {"predicted_us", prediction.predicted.value * 1e-3},
                              {"measured_local_us", run.measured_local.value * 1e-3},
                              {"predicted_local_us", prediction.predicted_local.value * 1e-3},
                              {"breakdown", to_json(prediction.breakdown)}});
    }
    return print(json);
  }
  const auto micros = [](Nanos time) { return fmt::format("{:.1f}", time.value * 1e-3); };
  const auto percent = [](double part) { return fmt::format("{:+.1f} %", 100 * part); };
  if (options.all) {
    Table table({"to", "hidden", "intermediate", "schedule, claims", "us", "predicted", "error", "local error"},
                "lrrlrrrr");
    for (const auto& prediction : predictions) {
      const auto& run = prediction.run;
      table.add({run.dst, std::to_string(run.hidden), std::to_string(run.intermediate), name(run), micros(run.measured),
                 micros(prediction.predicted), percent(prediction.error()), percent(prediction.local_error())});
    }
    fmt::print("{}", table.text());
  }
  Table table({"to", "hidden", "intermediate", "measured best", "us", "chosen", "us", "loss"}, "lrrlrlrr");
  for (const auto& choice : summary.choices) {
    table.add({choice.dst, std::to_string(choice.hidden), std::to_string(choice.intermediate), name(choice.best),
               micros(choice.best.measured), name(choice.chosen), micros(choice.chosen.measured),
               percent(choice.loss())});
  }
  fmt::print(
      "{}=> {} runs told within {:.1f} % (median; {:.1f} % for the local control); the chosen order is the best or "
      "within 3 % of it in {} of {} shapes.\n",
      table.text(), runs.size(), 100 * summary.median_error, 100 * summary.median_local_error, summary.num_good_choices,
      summary.choices.size());
}

}  // namespace

void add_simulate_synthetic(CLI::App& simulate) {
  auto* command =
      simulate.add_subcommand("synthetic", "Kernel with timed spins and real stores, against measured runs");
  const auto options = std::make_shared<SyntheticOptions>();
  add_file(*command, "runs", options->runs, "CSV of measured runs (data/synthetic_moe_combine.csv)")->required();
  command->add_option("--machine", options->machine, "Machine profile: file or name")->capture_default_str();
  command->add_flag("--all", options->all, "Also one line for every run");
  add_json(*command, options->json);
  command->callback([options] { simulate_synthetic(*options); });
}

}  // namespace xs::cli
