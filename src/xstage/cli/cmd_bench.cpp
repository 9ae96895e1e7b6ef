// bench: layers of published models in every order, and what the planner's choice gains.

#include <charconv>
#include <filesystem>
#include <memory>

#include "xstage/bench/moe_bench.hpp"
#include "xstage/bench/moe_summary.hpp"
#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/version.hpp"
#include "xstage/mem/host_facts.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

struct BenchOptions {
  std::string backend = "sim";
  std::string receive = "host";
  std::string machine = "h200";
  int device = 0;
  int workers = 0;
  double pace = 0;
  std::uint64_t seed = 1;
  std::string shard = "0/1";
  std::string output;
  bool json = false;
};

bench::Shard parse_shard(const std::string& text) {
  bench::Shard shard;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard.i);
  const bool has_slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = has_slash ? std::from_chars(first.ptr + 1, end, shard.n) : first;
  require(has_slash && second.ec == std::errc() && second.ptr == end, "--shard {}: expected i/n, 0/1 for everything",
          excerpt(text));
  return shard;
}

std::string micros(Nanos time) { return fmt::format("{:.1f}", time.value * 1e-3); }
std::string signed_percent(double part) { return fmt::format("{:+.1f} %", 100 * part); }

std::string name_of(const bench::MoeRecord& record) {
  return fmt::format("{}, {} tokens", record.model, record.tokens_per_rank);
}

std::string describe(const bench::GainSummary& gains) {
  return fmt::format("{:.3f}x geometric mean, {:.2f}x most, {:.2f}x least over {} cases", gains.geometric_mean,
                     gains.most, gains.least, gains.cases);
}

Json to_json(const bench::GainSummary& gains) {
  return {
      {"cases", gains.cases}, {"geometric_mean", gains.geometric_mean}, {"most", gains.most}, {"least", gains.least}};
}

void print_report(const bench::MoeFile& file, bool as_json) {
  const auto summary = bench::summarize(file.records);
  if (as_json) {
    Json json = bench::to_json(file);
    json["summary"] = {{"gain", to_json(summary.all)},
                       {"gain_where_rho_above_1", to_json(summary.crowded)},
                       {"slower_than_waves_by_1_percent", summary.num_slower},
                       {"within_2_percent_of_best", summary.num_near_best},
                       {"within_8_percent_of_bound", summary.num_near_bound},
                       {"median_abs_error", summary.median_error}};
    return print(json);
  }
  Table table({"model", "tokens", "SMs", "rho", "choice", "us", "waves us", "gain", "over best", "over bound",
               "predicted", "operand stall", "sender stall"},
              "lrrrlrrrrrrrr");
  for (const auto& record : file.records) {
    const auto& choice = record.choice();
    const bool has_shares = !record.shares.empty();
    table.add({record.model, std::to_string(record.tokens_per_rank), std::to_string(record.workers),
               fmt::format("{:.2f}", record.rho), to_string(choice.order) + ", " + to_string(choice.claim),
               micros(choice.median), micros(record.runs[record.baseline].median), fmt::format("{:.3f}", record.gain()),
               fmt::format("{:.3f}", record.over_best()), fmt::format("{:.2f}", record.over_bound()),
               signed_percent(record.error()), has_shares ? percent(record.shares[0].operand_stall) : "",
               has_shares ? percent(record.shares[0].sender_stall) : ""});
  }
  const auto count = file.records.size();
  const auto& settings = file.settings;
  fmt::print("{}{}, {}, peers' memory: {}, profile {}, commit {}\n", table.text(),
             settings.chip.empty() ? "virtual time" : settings.chip,
             settings.driver.empty() ? "no driver" : "driver " + settings.driver, settings.receive, settings.machine,
             settings.commit);
  fmt::print("The planner's choice over expert waves at their heuristic's size:\n  all       {}\n  rho > 1   {}\n",
             describe(summary.all), describe(summary.crowded));
  fmt::print(
      "More than 1 % slower than waves in {} of {}; within 2 % of the best order in {}; within 8 % of "
      "max(rows to own memory, bytes / drain) in {}; predicted within {:.1f} % (median).\n",
      summary.num_slower, count, summary.num_near_best, summary.num_near_bound, 100 * summary.median_error);
  for (const auto i : summary.outliers) {
    fmt::print("  predicted {} wrong: {}\n", signed_percent(file.records[i].error()), name_of(file.records[i]));
  }
}

// What is there already, of the same settings; nothing if there is no such file.
bench::MoeFile begin_or_resume(const std::string& output, const bench::MoeSettings& settings) {
  bench::MoeFile file{settings, {}};
  if (output.empty() || !std::filesystem::exists(output)) return file;
  const auto found = bench::read_moe_file(output);
  require(found.settings == settings, "{}: holds cases of other settings, {}; these are {}; name another file", output,
          bench::to_json(bench::MoeFile{found.settings, {}})["settings"].dump(),
          bench::to_json(file)["settings"].dump());
  return found;
}

void run_moe84(const BenchOptions& options) {
  require(options.backend == "sim" || options.backend == "cuda", "--backend {}: expected sim or cuda", options.backend);
  require(options.receive == "own" || options.receive == "host", "--receive {}: expected own or host", options.receive);
  const auto cases = bench::moe84(parse_shard(options.shard));
  const bool on_gpu = options.backend == "cuda";
  bench::MoeBench bench;
  bench.machine = load_machine(options.machine);
  bench.receive = options.receive == "own" ? GpuPlace::own : GpuPlace::far;
  bench.dst = options.receive == "own" ? "hbm" : "host";
  bench.workers = options.workers;
  bench.pace = options.pace;
  bench.seed = options.seed;
  const auto pace = bench::pace_of(bench.machine, bench.dst, options.pace);
  bench.make_timer = on_gpu ? bench::gpu_ranks(options.device, bench.receive, pace)
                            : bench::simulated_ranks(bench.machine, bench.dst, options.pace);
  bench::MoeSettings settings{options.backend, options.receive, bench.machine.name, "",          "",
                              commit(),        options.workers, options.pace,       options.seed};
  if (on_gpu) {
    settings.chip = gpu_info(options.device).name;
    settings.driver = driver_version();
  }
  require_writable({options.output});
  auto file = begin_or_resume(options.output, settings);
  Progress progress("bench");
  std::size_t num_done = 0;
  for (const auto& one : cases) {
    const bool is_there = std::ranges::any_of(file.records, [&](const bench::MoeRecord& record) {
      return record.model == one.model.name && record.tokens_per_rank == one.tokens_per_rank;
    });
    if (!is_there) {
      file.records.push_back(bench.run(one));
      if (!options.output.empty()) bench::write_moe_file(options.output, file);
    }
    progress.update(static_cast<double>(++num_done) / static_cast<double>(cases.size()));
  }
  print_report(file, options.json);
}

void add_moe84(CLI::App& bench) {
  auto* command = bench.add_subcommand("moe84", "12 models x 7 numbers of tokens, one of 8 ranks");
  const auto options = std::make_shared<BenchOptions>();
  command->add_option("--backend", options->backend, "sim: virtual time; cuda: the kernel on this machine's GPU")
      ->capture_default_str();
  command->add_option("--receive", options->receive, "Where the peers' memory lies: own, or host (behind PCIe)")
      ->capture_default_str();
  command->add_option("--machine", options->machine, "Profile of the predictions: file or name")->capture_default_str();
  add_number(*command, "--device", options->device, 0, 1023, "GPU, of --backend cuda");
  add_number(*command, "--workers", options->workers, 0, 4096,
             "SMs of the measured rank; 0: all, but over PCIe above 128 tokens only as many as make it NVLink's ratio");
  add_number(*command, "--pace", options->pace, 0.0, 1.0,
             "Part of the profile's port that all runs keep within, so that full PCIe slows down no loads; 0: none");
  add_number(*command, "--seed", options->seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
             "Seed of the routing");
  command->add_option("--shard", options->shard, "i/n: every n-th case from number i")->capture_default_str();
  add_file(*command, "-o,--output", options->output,
           "Keep what was measured here, case by case; what it holds already is not run again");
  add_json(*command, options->json);
  command->callback([options] { run_moe84(*options); });
}

void add_bench_report(CLI::App& bench) {
  auto* command = bench.add_subcommand("report", "Table and summary of files that bench wrote");
  const auto files = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("files", *files, "Files of shards")->type_name("FILE")->required();
  add_json(*command, *json);
  command->callback([files, json] {
    std::vector<bench::MoeFile> read;
    for (const auto& file : *files) read.push_back(bench::read_moe_file(file));
    print_report(bench::merge(read), *json);
  });
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Layers of published models in every order, measured or simulated");
  command->require_subcommand(1);
  add_moe84(*command);
  add_bench_report(*command);
}

}  // namespace xs::cli
