// fit, predict: from samples to a profile, and from a profile to times.

#include <algorithm>
#include <cmath>
#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/cli/probe_tables.hpp"
#include "xstage/core/json.hpp"
#include "xstage/model/hold_out.hpp"
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

struct FitOptions {
  std::string samples, output, machine;
  int folds = 0;
  bool json = false;
};

// All worker counts of one path and destination, which are fitted together.
struct PortGroup {
  std::string path, dst;
  std::vector<PatternSample> samples;
};

std::vector<PortGroup> group_ports(const Samples& samples) {
  std::vector<PortGroup> groups;
  for (const auto& port : samples.ports) {
    if (groups.empty() || groups.back().path != port.path || groups.back().dst != port.dst) {
      groups.push_back({port.path, port.dst, {}});
    }
    groups.back().samples.insert(groups.back().samples.end(), port.patterns.begin(), port.patterns.end());
  }
  return groups;
}

void fit(const FitOptions& options) {
  require_writable({options.output});
  const auto samples = read_samples(options.samples);
  Machine machine = base_machine(samples, options.machine, options.samples);
  machine.source = fmt::format("xstage fit of {} ({} rows)", std::filesystem::path(options.samples).filename().string(),
                               samples.num_rows);
  const auto groups = group_ports(samples);
  Progress progress("fit");
  for (const auto& group : groups) {
    const auto before = static_cast<double>(machine.ports.size());
    machine.ports.push_back(
        fit_port(group.samples, group.path, group.dst, {machine.sm_clock, machine.sm_groups},
                 [&](double done) { progress.update((before + done) / static_cast<double>(groups.size())); }));
  }
  const Json document = to_json(machine);
  if (!options.output.empty()) write_document(options.output, document);
  if (options.json) return print(document);
  print_ports(machine, fmt::format("{} rows of {}", samples.num_rows, options.samples), options.output);
}

Json to_json(const ErrorByWorkers& error) {
  Json entries = Json::array();
  for (const auto& [workers, mean] : error.by_workers()) {
    entries.push_back({{"workers", workers}, {"patterns", mean.count()}, {"mean_abs_rel_error", mean.value()}});
  }
  return entries;
}

Json to_json(const CrossingError& error) {
  return {{"count", error.count},
          {"within_10_percent", error.within_tenth},
          {"median_abs_rel_error", error.median},
          {"mean_abs_rel_error", error.mean}};
}

Json to_json(const PortHoldOut& port) {
  Json json = {{"path", port.path},
               {"dst", port.dst},
               {"patterns", port.num_patterns},
               {"fitted_error", port.fitted_error},
               {"held_out_error", port.held_out.all().value()},
               {"held_out_by_workers", to_json(port.held_out)},
               {"left_out_workers_error", port.left_out.all().value()},
               {"left_out_by_workers", to_json(port.left_out)},
               {"onset", to_json(port.error(Crossing::onset))},
               {"recovery", to_json(port.error(Crossing::recovery))},
               {"crossings", Json::array()}};
  for (const auto& crossing : port.crossings) {
    const bool is_onset = crossing.kind == Crossing::onset;
    json["crossings"].push_back({{"what", is_onset ? "onset_bytes" : "recovery_gap_cycles"},
                                 {"workers", crossing.workers},
                                 {is_onset ? "gap_cycles" : "bytes", crossing.at},
                                 {"measured", crossing.measured},
                                 {"predicted", crossing.predicted}});
  }
  return json;
}

// How well fits predict what they have not seen.
void hold_out(const FitOptions& options) {
  const auto samples = read_samples(options.samples);
  const Machine machine = base_machine(samples, options.machine, options.samples);
  const FitContext context{machine.sm_clock, machine.sm_groups};
  Json document = new_document("held_out_error");
  document["chip"] = machine.chip;
  document["samples"] = std::filesystem::path(options.samples).filename().string();
  document["folds"] = options.folds;
  document["ports"] = Json::array();
  Table table({"port", "patterns", "held out", "by SMs", "SMs left out", "by SMs", "onset", "recovery"}, "lrrlrlrr");
  const auto crossings = [&](const CrossingError& error) {
    return fmt::format("{} / {}, {}/{}", percent(error.median), percent(error.mean), error.within_tenth, error.count);
  };
  const auto by_workers = [](const ErrorByWorkers& error) {
    std::string text;
    for (const auto& [workers, mean] : error.by_workers()) {
      text += fmt::format("{}{}:{:.1f}", text.empty() ? "" : " ", workers, 100 * mean.value());
    }
    return text;
  };
  const auto groups = group_ports(samples);
  Progress progress("fit");
  double number = 0;
  for (const auto& group : groups) {
    const auto update = [&](double done) { progress.update((number + done) / static_cast<double>(groups.size())); };
    if (!can_hold_out(group.samples, options.folds)) {
      ++number;
      continue;
    }
    const auto port = xs::hold_out(group.samples, group.path, group.dst, context, options.folds, update);
    ++number;
    table.add({group.path + " to " + group.dst, std::to_string(port.num_patterns), percent(port.held_out.all().value()),
               by_workers(port.held_out), percent(port.left_out.all().value()), by_workers(port.left_out),
               crossings(port.error(Crossing::onset)), crossings(port.error(Crossing::recovery))});
    document["ports"].push_back(to_json(port));
  }
  if (options.json) return print(document);
  fmt::print(
      "{}held out: whole (bytes, gap) patterns in {} parts; SMs left out: one worker count at a time; onset, recovery: "
      "how far the held-out predictions' are from the measured ones, median / mean, how many within 10 %\n",
      table.text(), options.folds);
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
    const auto params = machine.port(port.path, port.dst);
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
  require(options.workers <= machine.num_sms, "--workers {}: {} has {} SMs", options.workers, machine.name,
          machine.num_sms);
  const auto port = machine.port(options.path, options.dst);
  const BurstPattern pattern{options.workers, {options.bytes}, {options.gap_cycles}, options.bursts};
  const auto result = predict(port, machine.sm_clock, pattern);
  const Cycles stall = result.mean_issue - result.free;
  const Bytes onset = onset_bytes(port, machine.sm_clock, pattern);
  const Cycles recovery = recovery_gap(port, machine.sm_clock, pattern);
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
    document["onset_bytes"] = onset.value;
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
  fmt::print("{} on {}: {} SMs x {:.0f} bytes, gap {:.0f} cycles, {} bursts\n{}", port_name(port), machine.name,
             options.workers, options.bytes, options.gap_cycles, options.bursts, table.text());
  fmt::print("onset: {}; recovery: {}\n",
             std::isinf(onset.value) ? "with this gap no burst up to 1 GiB stalls"
                                     : fmt::format("with this gap bursts from {:.0f} bytes stall", onset.value),
             std::isinf(recovery.value)
                 ? fmt::format("{:.0f} bytes stall after any gap", options.bytes)
                 : fmt::format("{:.0f} bytes do not stall after gaps of {:.0f} cycles", options.bytes, recovery.value));
  fmt::print("=> {}\n",
             stall.value < 0.1 * result.free.value
                 ? "The link keeps up: these stores cost their issue time only."
                 : fmt::format("The link does not keep up: a burst stalls {:.0f} cycles on average.", stall.value));
}

}  // namespace

void add_fit(CLI::App& app) {
  auto* command = app.add_subcommand("fit", "Port parameters from measured bursts and gaps");
  const auto options = std::make_shared<FitOptions>();
  add_file(*command, "samples", options->samples, "CSV of a probe (data/README.md has the columns)")->required();
  add_file(*command, "-o,--output", options->output, "Write the machine profile to this file");
  command->add_option(
      "--machine", options->machine,
      "Profile that gives compute rates and SM groups; default: the known profile of the samples' chip");
  add_json(*command, options->json);
  add_number(*command, "--hold-out", options->folds, 2, 100,
             "Instead: how well fits predict patterns, in so many parts, and worker counts that they have not seen");
  command->callback([options] { options->folds > 0 ? hold_out(*options) : fit(*options); });
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
