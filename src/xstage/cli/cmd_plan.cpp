// plan: which order, on which machine, for what gain.

#include <limits>
#include <memory>

#include "xstage/cli/moe_options.hpp"
#include "xstage/core/json.hpp"
#include "xstage/mem/host_facts.hpp"
#include "xstage/report/table.hpp"
#include "xstage/sim/planner.hpp"

namespace xs::cli {
namespace {

struct PlanOptions {
  std::string model = "deepseek-v3";
  int ranks = 8;
  std::int64_t tokens_per_rank = 2048;
  std::string routing = "balanced";
  std::uint64_t seed = 1;
  std::string machine;
  std::string path = "st16";
  std::string dst = "nvlink";
  std::string dtype = "fp8";
  int workers = 0;
  int tiles_in_flight = 2;
  bool print_config = false;
  bool json = false;
};

// The named profile, else the one of this machine's GPU that has the link.
Machine machine_of(const PlanOptions& options) {
  if (!options.machine.empty()) return load_machine(options.machine);
  const auto gpu = name_of_a_gpu();
  const auto name = profile_of_gpu(gpu, options.dst);
  if (!name.empty()) return load_machine(name);
  fail(ErrorKind::usage,
       "plan: {}; name a profile with --machine: {}; or measure bursts on your machine, fit them with `xstage fit "
       "SAMPLES.csv -o FILE.json` and name that file",
       gpu.empty() ? "no GPU was found on this machine"
                   : fmt::format("no profile of {} with a port to {} is known", gpu, options.dst),
       fmt::join(embedded_machines(), ", "));
}

std::vector<FittedParameter> intervals_of(const Machine& machine, const PortParams& port) {
  for (const auto& fitted : machine.ports) {
    if (fitted.params.path == port.path && fitted.params.dst == port.dst) return fitted.parameters;
  }
  return {};
}

std::string verdict(const MoePlan& plan) {
  const auto& choice = plan.orders[0];
  const auto& baseline = plan.orders[plan.baseline];
  const auto gain = fmt::format("{:.1f} % over {}", 100 * (plan.gain() - 1), to_string(baseline.order));
  if (plan.gain_expected) {
    return fmt::format("{} with {} claims: {:.1f} us, gains {}", to_string(choice.order), to_string(choice.claim),
                       choice.predicted.value * 1e-3, gain);
  }
  if (plan.rho <= 1) {
    return fmt::format(
        "no gain expected from hiding stores: the link drains faster than Linear-2 stores (rho {:.2f}); "
        "{} gains {}, through waits and tails alone",
        plan.rho, to_string(choice.order), gain);
  }
  return fmt::format("no gain expected: {} gains {}, which the model cannot tell from none", to_string(choice.order),
                     gain);
}

Json to_json(const PlannedOrder& planned) {
  return {{"schedule", to_string(planned.order)},           {"claim", to_string(planned.claim)},
          {"predicted_us", planned.predicted.value * 1e-3}, {"slow_us", planned.slow.value * 1e-3},
          {"fast_us", planned.fast.value * 1e-3},           {"breakdown", xs::to_json(planned.breakdown)}};
}

void print_plan(const MoePlan& plan, const MoeModel& model, const Machine& machine, const PlanOptions& options,
                int workers) {
  if (options.json) {
    Json json = new_document("moe_plan");
    json["model"] = model.name;
    json["num_ranks"] = options.ranks;
    json["tokens_per_rank"] = options.tokens_per_rank;
    json["routing"] = options.routing;
    json["machine"] = machine.name;
    json["machine_source"] = machine.source;
    json["datasheet_estimate"] = machine.is_estimate();
    json["path"] = options.path;
    json["dst"] = options.dst;
    json["dtype"] = options.dtype;
    json["workers"] = workers;
    json["tiles_in_flight"] = options.tiles_in_flight;
    json["rho"] = plan.rho;
    json["choice"] = to_json(plan.orders[0]);
    json["baseline"] = to_json(plan.orders[plan.baseline]);
    json["gain"] = plan.gain();
    json["regret"] = plan.regret;
    json["gain_expected"] = plan.gain_expected;
    json["verdict"] = verdict(plan);
    json["orders"] = Json::array();
    for (const auto& planned : plan.orders) json["orders"].push_back(to_json(planned));
    return print(json);
  }
  fmt::print("{} ({}): {} tokens on each of {} ranks of {}, {} of {} SMs, {}, {} to {}, {} routing; rho {:.2f}\n",
             model.name, describe(model.shape), options.tokens_per_rank, options.ranks, machine.chip, workers,
             machine.num_sms, options.dtype, options.path, options.dst, options.routing, plan.rho);
  if (machine.is_estimate()) fmt::print("{}: {}\n", machine.name, machine.source);
  Table table({"schedule", "claims", "us", "sender stall", "dependency", "operands", "tail", "link busy"}, "llrrrrrr");
  for (const auto& planned : plan.orders) {
    const auto& shares = planned.breakdown;
    const auto share = [&](SpanKind kind) { return percent(shares.share[static_cast<std::size_t>(kind)]); };
    table.add({to_string(planned.order), to_string(planned.claim),
               fmt::format("{:.1f}", planned.predicted.value * 1e-3), share(SpanKind::sender_stall),
               share(SpanKind::dependency), share(SpanKind::operand_stall), percent(shares.tail),
               percent(shares.link_busy)});
  }
  fmt::print("{}", table.text());
  const auto& choice = plan.orders[0];
  if (choice.slow != choice.fast) {
    fmt::print("with the port at an end of its 95 % interval: {:.1f} or {:.1f} us; regret of the choice {:.1f} %\n",
               choice.fast.value * 1e-3, choice.slow.value * 1e-3, 100 * plan.regret);
  } else {
    fmt::print("no interval is known for this port: the regret of a wrong model is not known either\n");
  }
  fmt::print("=> {}{}.\n", machine.is_estimate() ? "Datasheet estimate: " : "", verdict(plan));
}

void plan(const PlanOptions& options) {
  const auto model = find_moe_model(options.model);
  const auto machine = machine_of(options);
  const int workers = options.workers > 0 ? options.workers : machine.num_sms;
  require(workers <= machine.num_sms, "--workers {}: {} has {} SMs", workers, machine.name, machine.num_sms);
  require(options.tokens_per_rank <= std::numeric_limits<std::int32_t>::max() / options.ranks / model.shape.topk,
          "--tokens-per-rank {} times {} ranks times top-{} is more rows than 32 bits count", options.tokens_per_rank,
          options.ranks, model.shape.topk);
  const auto problem = make_problem(model.shape, MoeTiling{}, options.ranks,
                                    make_routing(options.routing, options.ranks * options.tokens_per_rank,
                                                 model.shape.num_experts, model.shape.topk, options.seed));
  const auto sim = sim_machine(machine, options.dtype, options.path, options.dst, workers);
  Progress progress("plan");
  const auto result = plan_moe(problem, bytes_of(options.dtype),
                               {sim, intervals_of(machine, sim.port), workers, options.tiles_in_flight},
                               [&](double done) { progress.update(done); });
  print_plan(result, model, machine, options, workers);
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* command = app.add_subcommand("plan", "Which order a layer should run in on a machine, and what that gains");
  const auto options = std::make_shared<PlanOptions>();
  command->add_option("--model", options->model, "Model whose layer to take (xstage list models)")
      ->capture_default_str();
  add_number(*command, "--ranks", options->ranks, 1, 1024, "Expert-parallel ranks");
  add_number(*command, "--tokens-per-rank", options->tokens_per_rank, std::int64_t{1},
             std::int64_t{std::numeric_limits<std::int32_t>::max()}, "Tokens of every rank");
  command->add_option("--routing", options->routing, "Synthetic routing (xstage list routings)")->capture_default_str();
  add_number(*command, "--seed", options->seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
             "Seed of everything random");
  command->add_option("--machine", options->machine,
                      "Machine profile: file or name; default: the known profile of this machine's GPU");
  command->add_option("--path", options->path, "Store path on the machine")->capture_default_str();
  command->add_option("--dst", options->dst, "Link to the peers on the machine")->capture_default_str();
  command->add_option("--dtype", options->dtype, "Products on the machine: bf16 or fp8")->capture_default_str();
  add_number(*command, "--workers", options->workers, 0, 65536, "SMs that compute; 0: all");
  add_tiles_in_flight(*command, options->tiles_in_flight);
  command->add_flag("--print-config", options->print_config, "Print all options as a file for --config, and stop")
      ->configurable(false);
  add_json(*command, options->json)->configurable(false);
  command->callback([options, command] {
    if (options->print_config) return fmt::print("[plan]\n{}", command->config_to_str(true, false));
    plan(*options);
  });
}

}  // namespace xs::cli
