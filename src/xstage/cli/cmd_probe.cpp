// probe: bursts and gaps on a port of this host or of a GPU, measured.

#include <algorithm>
#include <cmath>
#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/cli/probe_tables.hpp"
#include "xstage/core/json.hpp"
#include "xstage/probe/gpu_target.hpp"
#include "xstage/probe/host_target.hpp"
#include "xstage/probe/machine_probe.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

struct ProbeCommandOptions {
  std::string backend = "cpu", output, samples;
  double drain_gbs = 1, latency_us = 0;
  std::int64_t capacity_bytes = 4 << 20;
  GpuPort port;
  std::vector<int> workers;  // none: what the backend takes by itself
  int repeats = 11;
  bool fit = false, all = false, neighbours = false, json = false;
};

// What was fitted beside what the port was given, to say how far the way from bytes to parameters can be trusted.
struct Recovered {
  FittedPort port;
  double drain_gbs, capacity_bytes;  // capacity: of the largest number of workers
};

Recovered recover(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns, int most_workers) {
  const auto port = fit_probed(to_samples(patterns), target.path, target.dst, {target.clock});
  return {port, port.params.drain.value, port.params.capacity_of(most_workers).value};
}

void print_recovered(const Recovered& found, const ProbeCommandOptions& options) {
  Table table({"", "given", "fitted", "error"});
  const auto row = [&](const char* name, double given, double fitted, double unit) {
    table.add({name, fmt::format("{:.3f}", given / unit), fmt::format("{:.3f}", fitted / unit),
               fmt::format("{:+.1f} %", 100 * (fitted / given - 1))});
  };
  row("drain GB/s", options.drain_gbs, found.drain_gbs, 1);
  row("capacity MiB", static_cast<double>(options.capacity_bytes), found.capacity_bytes, 1 << 20);
  fmt::print("{}", table.text());
  if (!found.port.saturated) {
    return fmt::print("=> None of these patterns fills the port: both are lower bounds ({}).\n", errors_of(found.port));
  }
  fmt::print(
      "=> Measured: threads put for free until {:.2f} MB are outstanding; then they wait for a port that drains {:.3f} "
      "GB/s ({}).\n",
      found.capacity_bytes * 1e-6, found.drain_gbs, errors_of(found.port));
}

Json recovered_json(const Recovered& found, const ProbeCommandOptions& options) {
  Json json{{"drain_gbs", found.drain_gbs},
            {"drain_rel_error", found.drain_gbs / options.drain_gbs - 1},
            {"capacity_bytes", found.capacity_bytes},
            {"capacity_rel_error", found.capacity_bytes / static_cast<double>(options.capacity_bytes) - 1},
            {"saturated", found.port.saturated},
            {"patterns", found.port.num_patterns},
            {"mean_abs_rel_error", found.port.mean_abs_rel_error}};
  if (found.port.held_out_error) json["held_out_error"] = *found.port.held_out_error;
  return json;
}

void probe_host(const ProbeCommandOptions& options) {
  const auto target = host_target(
      {{options.drain_gbs}, static_cast<std::size_t>(options.capacity_bytes), Nanos{options.latency_us * 1e3}});
  const auto workers = options.workers.empty() ? std::vector{1} : options.workers;
  Progress progress("probe");
  const auto patterns = probe_port(target, {.workers = workers, .most_repeats = options.repeats},
                                   [&](double done) { progress.update(done); });
  if (!options.output.empty()) write_text(options.output, samples_csv(target, patterns));
  const int most_workers = std::ranges::max(workers);
  if (!options.json) {
    print_patterns(target, patterns);
    if (!options.output.empty()) fmt::print("written to {}\n", options.output);
    if (options.fit) print_recovered(recover(target, patterns, most_workers), options);
    return;
  }
  Json document = new_document("probe");
  document["backend"] = options.backend;
  document["drain_gbs"] = options.drain_gbs;
  document["capacity_bytes"] = options.capacity_bytes;
  document["latency_us"] = options.latency_us;
  document["patterns"] = to_json(patterns);
  if (options.fit) document["fit"] = recovered_json(recover(target, patterns, most_workers), options);
  print(document);
}

// What a GPU port is measured with.
ProbeOptions gpu_options(const ProbeCommandOptions& options, int num_sms) {
  ProbeOptions result{.workers = options.workers, .most_repeats = options.repeats};
  if (result.workers.empty()) result.workers = worker_counts(num_sms);
  require(std::ranges::max(result.workers) <= num_sms, "--workers {}: this GPU has {} SMs",
          std::ranges::max(result.workers), num_sms);
  return result;
}

Json placement_of(const ProbeTarget& target, const std::vector<int>& workers) {
  Json json = Json::array();
  for (const int count : workers) json.push_back({{"workers", count}, {"sms", target.placement(count)}});
  return json;
}

void probe_gpu(const ProbeCommandOptions& options) {
  const auto target = gpu_target(options.port);
  const auto measured = gpu_options(options, target.num_sms);
  Progress progress("probe");
  const auto patterns = probe_port(target, measured, [&](double done) { progress.update(done); });
  if (!options.output.empty()) write_text(options.output, samples_csv(target, patterns));
  Machine machine;
  if (options.fit) {
    machine = gpu_machine(options.port.device);
    Progress fitting("fit");
    machine.ports.push_back(fit_probed(to_samples(patterns), target.path, target.dst, {target.clock, machine.sm_groups},
                                       [&](double done) { fitting.update(done); }));
  }
  if (!options.json) {
    print_patterns(target, patterns);
    if (!options.output.empty()) fmt::print("written to {}\n", options.output);
    if (options.fit) print_ports(machine, fmt::format("{} patterns", patterns.size()), "");
    return;
  }
  Json document = new_document("probe");
  document["backend"] = options.backend;
  document["chip"] = target.chip;
  document["sm_clock_ghz"] = target.clock.value;
  document["path"] = target.path;
  document["dst"] = target.dst;
  document["patterns"] = to_json(patterns);
  if (target.placement) document["placement"] = placement_of(target, measured.workers);
  if (options.fit) document["fit"] = to_json(machine).at("ports").at(0);
  print(document);
}

void probe_all(const ProbeCommandOptions& options) {
  auto machine = gpu_machine(options.port.device);
  const auto measured = gpu_options(options, machine.num_sms);
  std::vector<std::function<ProbeTarget()>> targets;
  for (const auto& port : ports_on_offer(options.port.device)) {
    targets.emplace_back([port] { return gpu_target(port); });
  }
  Progress progress("probe");
  const auto probed = probe_machine(std::move(machine), targets, measured, [&](double done) { progress.update(done); });
  const Json document = to_json(probed.machine);
  if (!options.output.empty()) write_document(options.output, document);
  if (!options.samples.empty()) write_text(options.samples, probed.samples);
  if (options.json) return print(document);
  print_ports(probed.machine, probed.machine.source, options.output);
}

void probe_side_by_side(const ProbeCommandOptions& options) {
  const auto target = neighbour_target(options.port);
  NeighbourOptions measured{.repeats = options.repeats};
  if (!options.workers.empty()) measured.storers = options.workers;
  Progress progress("probe");
  const auto table = probe_neighbours(target, measured, [&](double done) { progress.update(done); });
  if (!options.json) return print_neighbours(target, table);
  Json document = new_document("neighbours");
  document["chip"] = target.chip;
  document["path"] = target.path;
  document["dst"] = target.dst;
  document.update(to_json(table));
  print(document);
}

void probe(const ProbeCommandOptions& options) {
  require(options.backend == "cpu" || options.backend == "cuda", "--backend {}: expected cpu or cuda", options.backend);
  require_port(options.port);
  require(!options.all || options.fit, "--all makes a profile of every port: add --fit");
  require(options.all || options.samples.empty(), "--samples needs --all; of one port, -o writes the samples");
  require_writable({options.output, options.samples});
  if (options.backend == "cpu") return probe_host(options);
  options.all ? probe_all(options) : options.neighbours ? probe_side_by_side(options) : probe_gpu(options);
}

// Options that say something about the other backend only are a mistake.
void require_backend(const CLI::App& command, const ProbeCommandOptions& options) {
  const bool cpu = options.backend == "cpu";
  for (const char* name : {"--to", "--path", "--copy-bytes", "--device", "--neighbours", "--all", "--samples"}) {
    require(!cpu || command.count(name) == 0, "{} needs --backend cuda", name);
  }
  for (const char* name : {"--drain-gbs", "--capacity-bytes", "--latency-us"}) {
    require(cpu || command.count(name) == 0, "{} describes the software port of --backend cpu", name);
  }
}

}  // namespace

void add_probe(CLI::App& app) {
  auto* command = app.add_subcommand("probe", "Bursts and gaps on a port, measured: what fit reads");
  const auto options = std::make_shared<ProbeCommandOptions>();
  command->add_option("--backend", options->backend, "cpu: a software port of this host; cuda: ports of a GPU")
      ->capture_default_str();
  command->add_option("--to", options->port.to, "Where a GPU stores: host, hbm (its own memory), peer")
      ->capture_default_str();
  command->add_option("--path", options->port.path, "How: st16, st4, bulk, tensor; copy engine: ce, ce_batch, ce_wait")
      ->capture_default_str();
  add_number(*command, "--copy-bytes", options->port.copy_bytes, 256, 32768,
             "Of one bulk or tensor copy: a power of 2");
  add_number(*command, "--device", options->port.device, 0, 1023, "Number of the GPU");
  add_number(*command, "--drain-gbs", options->drain_gbs, 1e-3, 100.0, "What the software port drains, GB/s");
  add_number(*command, "--capacity-bytes", options->capacity_bytes, std::int64_t{65536}, std::int64_t{1} << 30,
             "Bytes that may be outstanding in it");
  add_number(*command, "--latency-us", options->latency_us, 0.0, 1e6, "From drained to remote visible");
  command
      ->add_option(
          "--workers", options->workers,
          "Numbers of threads or SMs that store at the same time, with commas; of a GPU, if not given, from 1 to all")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->type_name("INT,…")
      ->default_str("1");
  add_number(*command, "--repeats", options->repeats, 6, 1000, "Most repeats of a pattern that does not settle");
  add_file(*command, "-o,--output", options->output, "Write the samples to this CSV; with --all, the profile");
  command->add_flag("--fit", options->fit, "Fit the samples; cpu: compare with what the port was given");
  auto* neighbours =
      command->add_flag("--neighbours", options->neighbours,
                        "Instead: what loads of other SMs lose while --workers SMs store, unpaced and paced");
  command->add_flag("--all", options->all, "With --fit: every path and destination; -o writes a machine profile")
      ->excludes(neighbours);
  add_file(*command, "--samples", options->samples, "With --all: write the samples of all ports to this CSV");
  add_json(*command, options->json);
  command->callback([command, options] {
    require_backend(*command, *options);
    probe(*options);
  });
}

}  // namespace xs::cli
