// probe: bursts and gaps on a port, measured.

#include <algorithm>
#include <cmath>
#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/model/fit.hpp"
#include "xstage/probe/host_target.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

struct ProbeCommandOptions {
  std::string backend = "cpu", output;
  double drain_gbs = 1, latency_us = 0;
  std::int64_t capacity_bytes = 4 << 20;
  std::vector<int> workers = {1};
  int repeats = 11;
  bool fit = false, json = false;
};

const char* name_of(Completion completion) {
  return completion == Completion::issued        ? "issued"
         : completion == Completion::source_free ? "source free"
                                                 : "remote visible";
}

void print_patterns(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns) {
  Table table({"workers", "bytes each", "gap us", "awaited", "bursts", "repeats", "issue us", "95 % interval",
               "free us", "stalled"},
              "rrrlrrrrrr");
  const auto us = [&](double cycles) { return (Cycles{cycles} / target.clock).value * 1e-3; };
  for (const auto& probed : patterns) {
    const auto& [pattern, issue, done, gap, free] = probed;
    table.add({std::to_string(pattern.workers), fmt::format("{:.0f}", pattern.bytes.value),
               fmt::format("{:.0f}", us(gap.median())), name_of(pattern.await), std::to_string(pattern.bursts),
               std::to_string(issue.count()), fmt::format("{:.1f}", us(issue.median())),
               fmt::format("[{:.1f}, {:.1f}]", us(issue.low()), us(issue.high())),
               fmt::format("{:.1f}", us(free.value)), fmt::format("{:.0f} %", 100 * probed.stalled_share())});
  }
  fmt::print("{}: {} to {}\n{}", target.chip, target.path, target.dst, table.text());
}

Json to_json(const std::vector<ProbedPattern>& patterns) {
  Json entries = Json::array();
  for (const auto& probed : patterns) {
    const auto& [pattern, issue, done, gap, free] = probed;
    entries.push_back({{"workers", pattern.workers},
                       {"bytes", pattern.bytes.value},
                       {"gap_cycles", gap.median()},
                       {"awaited", name_of(pattern.await)},
                       {"bursts", pattern.bursts},
                       {"repeats", issue.count()},
                       {"issue_cycles", issue.median()},
                       {"issue_cycles_low", issue.low()},
                       {"issue_cycles_high", issue.high()},
                       {"done_cycles", done.median()},
                       {"free_cycles", free.value},
                       {"stalled_share", probed.stalled_share()}});
  }
  return entries;
}

// What was fitted beside what the port was given, to say how far the way from bytes to parameters can be trusted.
struct Recovered {
  FittedPort port;
  double drain_gbs, capacity_bytes;  // capacity: of the largest number of workers
};

Recovered recover(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns, int most_workers) {
  const auto port = fit_port(to_samples(patterns), target.path, target.dst, {target.clock});
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
  if (!found.port.saturated) return fmt::print("=> None of these patterns fills the port: both are lower bounds.\n");
  fmt::print(
      "=> Measured: threads put for free until {:.2f} MB are outstanding; then they wait for a port that drains {:.3f} "
      "GB/s ({} patterns, mean error {:.1f} %).\n",
      found.capacity_bytes * 1e-6, found.drain_gbs, found.port.num_patterns, 100 * found.port.mean_abs_rel_error);
}

Json to_json(const Recovered& found, const ProbeCommandOptions& options) {
  return {{"drain_gbs", found.drain_gbs},
          {"drain_rel_error", found.drain_gbs / options.drain_gbs - 1},
          {"capacity_bytes", found.capacity_bytes},
          {"capacity_rel_error", found.capacity_bytes / static_cast<double>(options.capacity_bytes) - 1},
          {"saturated", found.port.saturated},
          {"patterns", found.port.num_patterns},
          {"mean_abs_rel_error", found.port.mean_abs_rel_error}};
}

void probe(const ProbeCommandOptions& options) {
  require(options.backend == "cpu" || options.backend == "cuda", "--backend {}: expected cpu or cuda", options.backend);
  if (options.backend == "cuda") {
    fail(ErrorKind::unavailable, "--backend cuda: this build measures ports of the host only; use --backend cpu");
  }
  require_writable({options.output});
  const auto target = host_target(
      {{options.drain_gbs}, static_cast<std::size_t>(options.capacity_bytes), Nanos{options.latency_us * 1e3}});
  Progress progress("probe");
  const auto patterns = probe_port(target, {.workers = options.workers, .most_repeats = options.repeats},
                                   [&](double done) { progress.update(done); });
  if (!options.output.empty()) write_text(options.output, samples_csv(target, patterns));
  const int most_workers = *std::ranges::max_element(options.workers);
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
  if (options.fit) document["fit"] = to_json(recover(target, patterns, most_workers), options);
  print(document);
}

}  // namespace

void add_probe(CLI::App& app) {
  auto* command = app.add_subcommand("probe", "Bursts and gaps on a port, measured: what fit reads");
  const auto options = std::make_shared<ProbeCommandOptions>();
  command->add_option("--backend", options->backend, "cpu: a software port of this host; cuda")->capture_default_str();
  add_number(*command, "--drain-gbs", options->drain_gbs, 1e-3, 100.0, "What the software port drains, GB/s");
  add_number(*command, "--capacity-bytes", options->capacity_bytes, std::int64_t{65536}, std::int64_t{1} << 30,
             "Bytes that may be outstanding in it");
  add_number(*command, "--latency-us", options->latency_us, 0.0, 1e6, "From drained to remote visible");
  command->add_option("--workers", options->workers, "Numbers of threads that put at the same time, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->type_name("INT,…")
      ->default_str("1");
  add_number(*command, "--repeats", options->repeats, 6, 1000, "Most repeats of a pattern that does not settle");
  add_file(*command, "-o,--output", options->output, "Write the samples to this CSV");
  command->add_flag("--fit", options->fit, "Fit the samples, and compare with what the port was given");
  add_json(*command, options->json);
  command->callback([options] { probe(*options); });
}

}  // namespace xs::cli
