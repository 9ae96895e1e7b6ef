// fit, predict: from samples to a profile, and from a profile to times.

#include <algorithm>
#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/model/fit.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

// Chip, clocks and compute rates of a fit's result: what --machine names, else the known profile of the chip that the
// samples name, else what the samples say about themselves.
Machine base_machine(const Samples& samples, const std::string& named, const std::string& file) {
  Machine machine;
  if (!named.empty()) {
    machine = load_machine(named);
    require(samples.chip.empty() || samples.chip == machine.chip, "{}: samples of {}, but --machine {} is {}", file,
            samples.chip, named, machine.chip);
  } else {
    for (const auto& name : embedded_machines()) {
      auto known = load_machine(name);
      if (known.chip == samples.chip) machine = std::move(known);
    }
    require(!machine.chip.empty() || (samples.num_sms > 0 && samples.sm_clock > GigaHertz{0}),
            "{}: the first line should be a comment like \"# NVIDIA H200 sm=132 clock_khz=1980000\"; add it, or name "
            "the machine with --machine",
            file);
  }
  if (machine.chip.empty()) {
    machine.name = machine.chip = samples.chip.empty() ? "unnamed" : samples.chip;
    machine.memory = {1e9};
    machine.memory_source = "not measured: operands count as free";
  }
  if (samples.num_sms > 0) machine.num_sms = samples.num_sms;
  if (samples.sm_clock > GigaHertz{0}) machine.sm_clock = samples.sm_clock;
  machine.ports.clear();
  return machine;
}

std::string port_name(const PortParams& port) { return port.path + " to " + port.dst; }

void fit(const std::string& samples_file, const std::string& output, const std::string& named, bool json) {
  require_writable({output});
  const auto samples = read_samples(samples_file);
  Machine machine = base_machine(samples, named, samples_file);
  machine.source = fmt::format("xstage fit of {} ({} rows), plain Burst-Gap",
                               std::filesystem::path(samples_file).filename().string(), samples.num_rows);
  Progress progress("fit");
  for (const auto& port : samples.ports) {
    machine.ports.push_back(fit_port(port, machine.sm_clock));
    progress.update(static_cast<double>(machine.ports.size()) / static_cast<double>(samples.ports.size()));
  }
  const Json document = to_json(machine);
  if (!output.empty()) write_document(output, document);
  if (json) return print(document);

  Table table({"port", "SMs", "free B/clk/SM", "drain GB/s", "capacity KiB", "patterns", "mean error"});
  const FittedPort* best = nullptr;  // for the closing line: the surest port, to a peer if there is one
  const auto score = [](const FittedPort& port) {
    return (port.params.dst == "nvlink" ? 0 : 1) + port.mean_abs_rel_error + 1.0 / port.num_patterns;
  };
  for (const auto& port : machine.ports) {
    const auto& params = port.params;
    const auto bound = port.saturated ? "" : ">= ";
    table.add({port_name(params), std::to_string(params.workers), fmt::format("{:.1f}", params.free_issue.value),
               fmt::format("{}{:.0f}", bound, params.drain.value),
               fmt::format("{}{:.0f}", bound, params.capacity.value / 1024), std::to_string(port.num_patterns),
               fmt::format("{:.1f} %", 100 * port.mean_abs_rel_error)});
    if (port.saturated && (best == nullptr || score(port) < score(*best))) best = &port;
  }
  fmt::print("{} at {:.2f} GHz, {} rows of {}\n{}", machine.chip, machine.sm_clock.value, samples.num_rows,
             samples_file, table.text());
  if (!std::ranges::all_of(machine.ports, &FittedPort::saturated)) {
    fmt::print(">=: these patterns do not show a full port; lower bound\n");
  }
  if (!output.empty()) fmt::print("written to {}\n", output);
  if (best == nullptr) return fmt::print("=> None of these patterns fills its port: every store was free.\n");
  fmt::print(
      "=> Measured: {} SMs of {} store {} for free until {:.1f} MB are outstanding; then they wait for a link that "
      "drains {:.0f} GB/s ({} patterns, mean error {:.1f} %).\n",
      best->params.workers, machine.chip, port_name(best->params), best->params.capacity.value * 1e-6,
      best->params.drain.value, best->num_patterns, 100 * best->mean_abs_rel_error);
}

struct PredictOptions {
  std::string machine = "h200";
  std::string path = "st16";
  std::string dst = "nvlink";
  std::string samples;
  int workers = 132;
  double bytes = 65536;
  double gap_cycles = 0;
  int bursts = 32;
  bool json = false;
};

void predict_samples(const Machine& machine, const PredictOptions& options) {
  const auto samples = read_samples(options.samples);
  Json document = new_document("prediction_error");
  document["machine"] = machine.name;
  document["samples"] = options.samples;
  document["ports"] = Json::array();
  Table table({"port", "SMs", "patterns", "mean error"});
  double sum = 0;
  for (const auto& port : samples.ports) {
    const auto params = machine.port(port.path, port.dst, port.workers);
    const double error = mean_abs_rel_error(params, machine.sm_clock, port.patterns);
    sum += error;
    document["ports"].push_back({{"path", port.path},
                                 {"dst", port.dst},
                                 {"workers", port.workers},
                                 {"rows", port.num_rows},
                                 {"patterns", port.patterns.size()},
                                 {"mean_abs_rel_error", error}});
    table.add({port.path + " to " + port.dst, std::to_string(port.workers), std::to_string(port.patterns.size()),
               fmt::format("{:.1f} %", 100 * error)});
  }
  if (options.json) return print(document);
  fmt::print("{}=> {} predicts the mean issue time of {}'s patterns within {:.1f} % (mean over {} ports).\n",
             table.text(), machine.name, options.samples, 100 * sum / static_cast<double>(samples.ports.size()),
             samples.ports.size());
}

void predict_pattern(const Machine& machine, const PredictOptions& options) {
  const auto port = machine.port(options.path, options.dst, options.workers);
  const BurstPattern pattern{options.workers, {options.bytes}, {options.gap_cycles}, options.bursts};
  const auto result = predict(port, machine.sm_clock, pattern);
  const Cycles stall = result.mean_issue - result.free;
  // After this gap everything of the burst has drained: the next one is as fast as the first.
  const Nanos drained = Bytes{options.bytes * options.workers} / port.drain;
  const Cycles recovery = max(Cycles{0}, drained * machine.sm_clock - result.first_issue);
  if (options.json) {
    Json document = new_document("prediction");
    document["machine"] = machine.name;
    document["path"] = options.path;
    document["dst"] = options.dst;
    document["workers"] = options.workers;
    document["bytes"] = options.bytes;
    document["gap_cycles"] = options.gap_cycles;
    document["bursts"] = options.bursts;
    document["free_issue_cycles"] = result.free.value;
    document["mean_issue_cycles"] = result.mean_issue.value;
    document["first_issue_cycles"] = result.first_issue.value;
    document["last_issue_cycles"] = result.last_issue.value;
    document["remote_visible_after_last_ns"] = result.visible_after_last.value;
    document["recovery_gap_cycles"] = recovery.value;
    return print(document);
  }
  Table table({"issue of a burst", "cycles", "us"});
  const auto row = [&](const char* name, Cycles cycles) {
    table.add(
        {name, fmt::format("{:.0f}", cycles.value), fmt::format("{:.2f}", (cycles / machine.sm_clock).value * 1e-3)});
  };
  row("free", result.free);
  row("mean", result.mean_issue);
  row("first", result.first_issue);
  row("last", result.last_issue);
  row("recovery gap", recovery);
  fmt::print("{} on {}: {} SMs x {:.0f} bytes, gap {:.0f} cycles, {} bursts\n{}", port_name(port), machine.name,
             options.workers, options.bytes, options.gap_cycles, options.bursts, table.text());
  fmt::print("=> {}\n",
             stall.value < 0.1 * result.free.value
                 ? "The link keeps up: these stores cost their issue time only."
                 : fmt::format("The link does not keep up: a burst stalls {:.0f} cycles on average.", stall.value));
}

}  // namespace

void add_fit(CLI::App& app) {
  struct Options {
    std::string samples, output, machine;
    bool json = false;
  };
  auto* command = app.add_subcommand("fit", "Port parameters from measured bursts and gaps");
  const auto options = std::make_shared<Options>();
  add_file(*command, "samples", options->samples, "CSV of a probe (data/README.md has the columns)")->required();
  add_file(*command, "-o,--output", options->output, "Write the machine profile to this file");
  command->add_option("--machine", options->machine,
                      "Profile that gives compute rates; default: the known profile of the samples' chip");
  add_json(*command, options->json);
  command->callback([options] { fit(options->samples, options->output, options->machine, options->json); });
}

void add_predict(CLI::App& app) {
  auto* command = app.add_subcommand("predict", "Issue time of one burst pattern, or the error over measured ones");
  const auto options = std::make_shared<PredictOptions>();
  command->add_option("--machine", options->machine, "Machine profile: file or name")->capture_default_str();
  command->add_option("--path", options->path, "Store path")->capture_default_str();
  command->add_option("--dst", options->dst, "Destination")->capture_default_str();
  add_number(*command, "--workers", options->workers, 1, 65536, "SMs that store");
  add_number(*command, "--bytes", options->bytes, 1.0, 1e15, "Bytes of a burst, per SM");
  add_number(*command, "--gap-cycles", options->gap_cycles, 0.0, 1e15, "SM cycles between bursts");
  add_number(*command, "--bursts", options->bursts, 1, 1000000, "Bursts in a row");
  add_file(*command, "--samples", options->samples, "CSV of a probe: print the error per port instead");
  add_json(*command, options->json);
  command->callback([options] {
    const auto machine = load_machine(options->machine);
    options->samples.empty() ? predict_pattern(machine, *options) : predict_samples(machine, *options);
  });
}

}  // namespace xs::cli
