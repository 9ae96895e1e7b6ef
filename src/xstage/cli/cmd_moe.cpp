// run moe, simulate moe: a layer on CPU ranks, and in virtual time.

#include <chrono>
#include <memory>

#include "xstage/cli/moe_options.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/npy.hpp"
#include "xstage/op/host_product.hpp"
#include "xstage/op/moe/moe.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/report/table.hpp"
#include "xstage/report/trace.hpp"

namespace xs::cli {
namespace {

struct RunOnlyOptions {
  std::string backend = "cpu";
  int workers = 1;
  std::string ranks_as = "threads";
  double timeout_s = 30;
  std::string input_dtype = "fp32";
  std::string output;
};

// As the machine would run it, proven.
Schedule schedule_of(const MoeCase& layer, const MoeOptions& options) {
  const auto bytes = bytes_of(options.dtype);
  auto schedule =
      layer.tasks.empty() ? layer.problem.schedule(layer.order, bytes) : layer.problem.schedule(layer.tasks, bytes);
  require_valid(schedule, layer.schedule_name);
  return schedule;
}

void write_files(const MoeCase& layer, const Schedule& schedule, const MoeOptions& options,
                 const std::vector<NamedTimeline>& timelines) {
  if (!options.schedule_out.empty()) write_document(options.schedule_out, to_json(layer.problem, schedule));
  if (!options.trace.empty()) write_text(options.trace, to_trace(timelines));
}

void print_orders(const MoeCase& layer, const MoeOptions& options, const Prediction& prediction) {
  fmt::print("full size ({}) on {} ranks of {}, {}, {} to {}, rho {:.2f}:\n", describe(layer.model.shape),
             options.ranks, layer.machine.chip, options.dtype, options.path, options.dst, prediction.rho);
  for (const auto& [name, time] : prediction.orders) fmt::print("  {:<22} {:>9.1f} us\n", name, time.value * 1e-3);
}

// One sentence about the orders of the full-size layer: the one that was asked for, or waves, against serial.
std::string verdict(const Prediction& prediction) {
  const auto& [serial_name, serial] = prediction.orders.front();
  const auto& [name, time] = prediction.orders.back();
  const double gain = serial / time;
  const auto link = prediction.rho > 1 ? "the link drains slower than Linear-2 tiles store"
                                       : "the link drains faster than Linear-2 tiles store";
  const auto change = gain > 1.01   ? fmt::format("{} gains {:.1f} %", name, 100 * (gain - 1))
                      : gain < 0.99 ? fmt::format("{} loses {:.1f} %", name, 100 * (1 / gain - 1))
                                    : fmt::format("no gain expected from {}", name);
  return fmt::format("{} {:.0f} us, {} {:.0f} us; {} (rho {:.2f}), {}", serial_name, serial.value * 1e-3, name,
                     time.value * 1e-3, link, prediction.rho, change);
}

RanksAre parse_ranks_are(const std::string& text) {
  require(text == "threads" || text == "processes", "--ranks-as {}: expected threads or processes", text);
  return text == "threads" ? RanksAre::threads : RanksAre::processes;
}

void run_moe(const MoeOptions& options, const RunOnlyOptions& run) {
  require(run.workers <= 4096 / options.ranks, "--ranks {} times --workers {} is more than 4096 threads", options.ranks,
          run.workers);
  parse_ranks_are(run.ranks_as);
  const auto dtype = parse_dtype(run.input_dtype);
  require_writable({options.schedule_out, options.trace, run.output});
  const auto layer = make_case(options);
  const auto schedule = schedule_of(layer, options);
  const auto prediction = predict_full(layer, options);

  Progress progress("run");
  auto inputs = moe::make_inputs(layer.shape, layer.routing, layer.hidden_states, options.seed, dtype);
  if (options.clamp > 0) inputs.clamp = static_cast<float>(options.clamp);
  moe::RunOptions run_options;
  run_options.num_ranks = options.ranks;
  run_options.placement = layer.problem.placement();
  run_options.capacity_rows = options.capacity_rows;
  run_options.order = layer.order;
  run_options.tasks = layer.tasks;
  run_options.tiling = layer.problem.tiling();
  run_options.host.ranks_are = parse_ranks_are(run.ranks_as);
  run_options.host.workers_per_rank = run.workers;
  run_options.host.claim = parse_claim(options.claim);
  run_options.host.signals.timeout = Nanos{run.timeout_s * 1e9};
  const auto result = moe::run_on_host(inputs, run_options);
  progress.update(0.5);
  const auto verification =
      moe::verify(inputs, result.output, 2e10, [&](double done) { progress.update(0.5 + done / 2); });

  // Wall clock on a shared CPU is noise; the shares of what ran are those of its schedule in virtual time.
  const auto virtual_time = simulate_on(schedule, layer.machine, options);
  write_files(layer, schedule, options, {{"CPU", &result.timeline}, {"predicted", &prediction.timeline}});
  if (!run.output.empty()) {
    write_npy(run.output, Array<float>{{layer.routing.num_tokens, layer.shape.hidden}, result.output});
  }

  const auto shares = breakdown(virtual_time);
  if (options.json) {
    Json json = describe_json("moe_run", layer, options);
    json["input_dtype"] = run.input_dtype;
    json["workspace_bytes"] = result.workspace_bytes;
    json["verified"] = verification.passed();
    json["verification"] = {{"tokens", verification.num_tokens},
                            {"max_relative_error", verification.max_error},
                            {"tolerance", verification.tolerance}};
    json["output_hash"] = hash(result.output);
    json["product"] = host_product_name();
    json["breakdown"] = xs::to_json(shares);
    json["breakdown"]["clock"] = "virtual";
    json["wall"] = xs::to_json(breakdown(result.timeline));
    for (const auto* unseen : {"link_busy", "overlap_ratio"}) json["wall"][unseen] = nullptr;  // no link to watch
    json["plan"] = to_json(layer, options, prediction);
    print(json);
  } else {
    fmt::print("{}", headline(layer, options, "CPU ranks"));
    fmt::print("output hash {}, worst token {:.1e} from the reference (tolerance {:.1e}, {} of {} tokens compared)\n",
               hash(result.output), verification.max_error, verification.tolerance, verification.num_tokens,
               layer.routing.num_tokens);
    fmt::print("{}", breakdown_table({{"CPU ranks, wall", breakdown(result.timeline)},
                                      {"this size on " + layer.machine.name, shares},
                                      // A schedule file has one size, so at full size the default order stands in.
                                      {layer.tasks.empty() ? "full size on " + layer.machine.name
                                                           : "full size, " + to_string(layer.order),
                                       breakdown(prediction.timeline)}}));
    print_orders(layer, options, prediction);
    if (layer.machine.is_estimate()) fmt::print("{}: {}\n", layer.machine.name, layer.machine.source);
    if (!options.trace.empty()) fmt::print("trace: {} (open it in https://ui.perfetto.dev)\n", options.trace);
    fmt::print("=> Executed: {} on {} CPU ranks, schedule {}: {}.\n", layer.model.name, options.ranks,
               layer.schedule_name,
               verification.passed() ? "every compared token equals the reference within rounding"
                                     : "NOT equal to the reference");
    fmt::print("=> Predicted: full size on {}: {}.\n", layer.machine.chip, verdict(prediction));
  }
  if (!verification.passed()) {
    fail(ErrorKind::verification, "the output differs from the reference by {:.2e}, {:.2e} is allowed",
         verification.max_error, verification.tolerance);
  }
}

std::string rank_table(const std::vector<Breakdown>& ranks, const std::vector<RankCondition>& conditions) {
  Table table({"rank", "start us", "clock", "compute", "operands", "sender stall", "dependency", "tail", "link busy"},
              "rrrrrrrrr");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto condition = conditions.empty() ? RankCondition{} : conditions[rank];
    const auto share = [&](SpanKind kind) { return percent(ranks[rank].share[static_cast<std::size_t>(kind)]); };
    table.add({std::to_string(rank), fmt::format("{:.1f}", condition.start.value * 1e-3),
               fmt::format("{:.2f}", condition.clock_factor), share(SpanKind::compute), share(SpanKind::operand_stall),
               share(SpanKind::sender_stall), share(SpanKind::dependency), percent(ranks[rank].tail),
               percent(ranks[rank].link_busy)});
  }
  return table.text();
}

void simulate_moe(const MoeOptions& options, bool per_rank) {
  require_writable({options.schedule_out, options.trace});
  const auto conditions = conditions_of(options);
  const auto layer = make_case(options);
  const auto schedule = schedule_of(layer, options);
  const auto begin = std::chrono::steady_clock::now();
  const auto timeline = simulate_on(schedule, layer.machine, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  write_files(layer, schedule, options, {{"predicted", &timeline}});
  const auto shares = breakdown(timeline);
  const auto ranks = breakdown_by_rank(timeline);
  if (options.json) {
    Json json = describe_json("moe_simulation", layer, options);
    json["machine"] = layer.machine.name;
    json["machine_source"] = layer.machine.source;
    json["sm_clock_ghz"] = layer.machine.sm_clock.value;
    json["tiles_in_flight"] = options.tiles_in_flight;
    json["predicted_us"] = timeline.makespan.value * 1e-3;
    json["breakdown"] = xs::to_json(shares);
    json["ranks"] = Json::array();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      Json entry = xs::to_json(ranks[rank]);
      entry["rank"] = rank;
      entry["start_us"] = conditions.empty() ? 0 : conditions[rank].start.value * 1e-3;
      entry["clock_factor"] = conditions.empty() ? 1 : conditions[rank].clock_factor;
      json["ranks"].push_back(std::move(entry));
    }
    std::size_t num_tasks = 0;
    for (const auto& rank : schedule.ranks) num_tasks += rank.tasks.size();
    json["tasks"] = num_tasks;
    json["simulation_seconds"] = took.count();
    return print(json);
  }
  fmt::print("{}", headline(layer, options, "ranks of " + layer.machine.chip));
  if (layer.machine.is_estimate()) fmt::print("{}: {}\n", layer.machine.name, layer.machine.source);
  if (per_rank) fmt::print("{}", rank_table(ranks, conditions));
  fmt::print("{}", breakdown_table({{layer.schedule_name, shares}}));
  fmt::print("=> {} takes {:.1f} us in virtual time.\n", layer.schedule_name, timeline.makespan.value * 1e-3);
}

}  // namespace

void add_run(CLI::App& app) {
  auto* run = app.add_subcommand("run", "Execute an operator, verify it, lay the prediction beside it");
  run->require_subcommand(1);
  auto* command = run->add_subcommand("moe", "Mixture-of-experts layer: fp32 products on CPU ranks, bf16 on a GPU");
  const auto options = std::make_shared<MoeOptions>();
  const auto only = std::make_shared<RunOnlyOptions>();
  const auto gpu = std::make_shared<GpuMoeOptions>();
  add_moe_options(*command, *options);
  command->add_option("--backend", only->backend, "cpu: CPU ranks; cuda: virtual ranks of a GPU (sm_90)")
      ->capture_default_str();
  add_file(*command, "--hidden-states", options->hidden_states, "Tokens from a .npy file, [num_tokens, hidden]");
  add_file(*command, "--topk-idx", options->topk_idx, "Experts from a .npy file, [num_tokens, topk], -1: not used");
  add_file(*command, "--topk-weights", options->topk_weights, "Their weights from a .npy file, [num_tokens, topk]");
  add_number(*command, "--clamp", options->clamp, 0.0, 1e30,
             "Of SwiGLU: gate at most this, up within +- this; 0: none");
  command->add_option("--ranks-as", only->ranks_as, "What ranks are: threads or processes")->capture_default_str();
  command->add_option("--input-dtype", only->input_dtype, "Round tokens and weights to this: fp32 or bf16")
      ->capture_default_str();
  add_number(*command, "--workers", only->workers, 1, 4096, "Threads of every rank");
  add_number(*command, "--timeout-s", only->timeout_s, 1e-6, 1e6, "Bound of every wait, in seconds");
  add_file(*command, "-o,--output", only->output, "Write the result to this .npy file, [num_tokens, hidden]");
  add_gpu_moe_options(*command, *gpu);
  command->callback([command, options, only, gpu] {
    require(only->backend == "cpu" || only->backend == "cuda", "--backend {}: expected cpu or cuda", only->backend);
    if (only->backend == "cpu") {
      refuse_gpu_moe_options(*command);
      return run_moe(*options, *only);
    }
    for (const char* name : {"--ranks-as", "--input-dtype", "--workers", "--capacity-rows"}) {
      require(command->get_option_no_throw(name) == nullptr || command->count(name) == 0, "{} needs --backend cpu",
              name);
    }
    gpu->timeout = Nanos{only->timeout_s * 1e9};
    gpu->output = only->output;
    run_moe_on_gpu(*options, *gpu);
  });
}

void add_simulate(CLI::App& app) {
  auto* simulate = app.add_subcommand("simulate", "Run an operator's schedule on a machine in virtual time");
  simulate->require_subcommand(1);
  auto* command = simulate->add_subcommand("moe", "Mixture-of-experts layer");
  const auto options = std::make_shared<MoeOptions>();
  const auto per_rank = std::make_shared<bool>(false);
  add_moe_options(*command, *options);
  add_tiles_in_flight(*command, options->tiles_in_flight);
  command->add_option("--late", options->late, "Rank that starts so many microseconds late; repeatable")
      ->type_name("RANK:US")
      ->allow_extra_args(false);
  command->add_option("--slow", options->slow, "Rank whose SM clock runs at this factor, 0.5: half; repeatable")
      ->type_name("RANK:FACTOR")
      ->allow_extra_args(false);
  add_number(*command, "--sm-clock-ghz", options->sm_clock_ghz, 0.0, 100.0, "SM clock of all ranks; 0: the machine's");
  command->add_flag("--per-rank", *per_rank, "Also one line for every rank");
  command->callback([options, per_rank] { simulate_moe(*options, *per_rank); });
  add_simulate_synthetic(*simulate);
}

}  // namespace xs::cli
