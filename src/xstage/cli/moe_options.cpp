#include "xstage/cli/moe_options.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <numeric>

#include "xstage/core/json.hpp"
#include "xstage/core/npy.hpp"
#include "xstage/plan/moe_capacity.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Routing from files, [num_tokens, topk] each.
Routing read_routing(const MoeOptions& options, const MoeShape& shape) {
  const auto index = read_npy_integers(options.topk_idx);
  const auto weight = read_npy_floats(options.topk_weights);
  require(index.shape.size() == 2 && index.shape[1] == shape.topk, "{}: shape [num_tokens, {}] expected, {} found",
          options.topk_idx, shape.topk, shape_text(index.shape));
  require(weight.shape == index.shape, "{}: shape {} expected as in {}, {} found", options.topk_weights,
          shape_text(index.shape), options.topk_idx, shape_text(weight.shape));
  require(index.shape[0] >= 1, "{}: at least one token expected, none found", options.topk_idx);
  Routing routing{index.shape[0], shape.topk, {}, weight.values};
  for (std::size_t i = 0; i < index.values.size(); ++i) {
    // Here and not in check_routing alone: what does not fit into 32 bits must not wrap into a valid expert.
    require(index.values[i] >= -1 && index.values[i] < shape.num_experts,
            "{}: token {}, slot {}: expert {} is out of range; expected -1 (slot not used) to {}", options.topk_idx,
            i / static_cast<std::size_t>(shape.topk), i % static_cast<std::size_t>(shape.topk), index.values[i],
            shape.num_experts - 1);
    routing.expert.push_back(static_cast<std::int32_t>(index.values[i]));
  }
  return check_routing(std::move(routing), shape.num_experts, options.topk_idx);
}

std::vector<float> read_hidden_states(const std::string& file, std::int64_t num_tokens, const MoeShape& shape) {
  auto array = read_npy_floats(file);
  const std::vector<std::int64_t> expected{num_tokens, shape.hidden};
  require(array.shape == expected, "{}: shape {} expected (tokens of the routing, hidden after --shrink), {} found",
          file, shape_text(expected), shape_text(array.shape));
  return std::move(array.values);
}

std::vector<std::vector<Task>> read_tasks(const std::string& file, const MoeProblem& problem) {
  auto read = read_moe_schedule(file);
  const bool same = read.problem.shape() == problem.shape() && read.problem.tiling() == problem.tiling() &&
                    read.problem.placement() == problem.placement() &&
                    std::ranges::equal(read.problem.rows(), problem.rows());
  require(same,
          "{}: made for another problem ({}, {} ranks, {} tokens, or another routing or placement); write one "
          "with the same options and --schedule-out",
          file, describe(read.problem.shape()), read.problem.num_ranks(), read.problem.num_tokens());
  return std::move(read.tasks);
}

// "3:1.5": rank 3 and a value in [least, most].
struct OfRank {
  std::size_t rank;
  double value;
};
OfRank parse_of_rank(const std::string& option, const std::string& text, int num_ranks, double least, double most,
                     const std::string& what) {
  OfRank parsed{};
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, parsed.rank);
  const bool separated = rank.ec == std::errc() && rank.ptr != end && *rank.ptr == ':';
  const auto value = std::from_chars(separated ? rank.ptr + 1 : end, end, parsed.value);
  require(separated && value.ec == std::errc() && value.ptr == end &&
              parsed.rank < static_cast<std::size_t>(num_ranks) && parsed.value >= least && parsed.value <= most,
          "{} expects RANK:{}, a rank from 0 to {} and a number from {} to {}; found \"{}\"", option, what,
          num_ranks - 1, least, most, text);
  return parsed;
}

// "64", or "64,0,128" with a number for every rank.
void add_tokens_per_rank(CLI::App& command, std::vector<std::int64_t>& tokens) {
  const auto parse = [&tokens](const std::string& text) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    std::vector<std::int64_t> numbers;
    const char* const last = text.data() + text.size();
    for (const char* at = text.data();; ++at) {
      const auto [end, error] = std::from_chars(at, last, numbers.emplace_back());
      const bool right =
          error == std::errc() && (end == last || *end == ',') && numbers.back() >= 0 && numbers.back() <= kMost;
      if (!right || (end == last && numbers == std::vector<std::int64_t>{0})) {
        throw CLI::ValidationError(
            "--tokens-per-rank",
            fmt::format("expected a whole number from 1 to {}, or one from 0 on for every rank with commas between, "
                        "found \"{}\"",
                        kMost, text));
      }
      if ((at = end) == last) break;
    }
    tokens = std::move(numbers);
  };
  command.add_option_function<std::string>("--tokens-per-rank", parse, "Tokens of every rank, or of each: 64,0,128")
      ->type_name("INT[,INT...]")
      ->default_str(fmt::format("{}", fmt::join(tokens, ",")));
}

// Whose the tokens are that the options ask for.
std::vector<std::int64_t> tokens_of_ranks(const MoeOptions& options, const MoeShape& shape) {
  auto tokens = options.tokens_per_rank;
  if (tokens.size() == 1) tokens.resize(static_cast<std::size_t>(options.ranks), tokens.front());
  require(std::ssize(tokens) == options.ranks,
          "--tokens-per-rank has {} numbers; one expected, or one for each of {} ranks", tokens.size(), options.ranks);
  const auto sum = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  require(sum >= 1, "--tokens-per-rank: at least one token expected, none found");
  require(sum <= std::numeric_limits<std::int32_t>::max() / shape.num_slots(),
          "--tokens-per-rank {} on {} ranks with top-{} and {} shared experts is more rows than 32 bits count",
          fmt::join(options.tokens_per_rank, ","), options.ranks, shape.topk, shape.num_shared);
  return tokens;
}

// The names of maps and orders have neither dots nor slashes; a typing error in a file's name must not become a strange
// order.
bool names_file(const std::string& text) { return text.find_first_of("./") != std::string::npos; }

ExpertMap experts_of(const MoeOptions& options, const MoeShape& shape) {
  if (names_file(options.expert_map)) return read_expert_map(options.expert_map, shape.num_experts, options.ranks);
  if (options.expert_map == "contiguous") return contiguous_experts(shape.num_experts, options.ranks);
  if (options.expert_map == "strided") return strided_experts(shape.num_experts, options.ranks);
  fail(ErrorKind::usage, "--expert-map {}: expected contiguous, strided or a file (a name with a dot or slash)",
       options.expert_map);
}

}  // namespace

std::string describe(const MoeShape& shape) {
  return fmt::format("hidden {}, intermediate {}, {} experts, top-{}{}", shape.hidden, shape.intermediate,
                     shape.num_experts, shape.topk,
                     shape.num_shared > 0 ? fmt::format(", {} shared", shape.num_shared) : "");
}

std::string headline(const MoeCase& layer, const MoeOptions& options, const std::string& where) {
  return fmt::format("{}{}: {}; {} tokens on {} {}, {} routing, schedule {}\n", layer.model.name,
                     options.shrink > 1 ? fmt::format(" / {}", options.shrink) : "", describe(layer.shape),
                     layer.routing.num_tokens, options.ranks, where,
                     options.topk_idx.empty() ? options.routing : options.topk_idx, layer.schedule_name);
}

Json describe_json(const char* kind, const MoeCase& layer, const MoeOptions& options) {
  Json json = new_document(kind);
  json["model"] = layer.model.name;
  json["hidden"] = layer.shape.hidden;
  json["intermediate"] = layer.shape.intermediate;
  json["num_experts"] = layer.shape.num_experts;
  json["topk"] = layer.shape.topk;
  json["num_shared"] = layer.shape.num_shared;
  json["shrink"] = options.shrink;
  json["num_ranks"] = options.ranks;
  json["num_tokens"] = layer.routing.num_tokens;
  json["tokens_per_rank"] = layer.problem.placement().tokens;
  json["expert_map"] = options.expert_map;
  json["routing"] = options.topk_idx.empty() ? options.routing : options.topk_idx;
  json["seed"] = options.seed;
  json["schedule"] = layer.schedule_name;
  json["ring_blocks"] = options.ring_blocks;
  return json;
}

std::string hash(const std::vector<float>& values) {
  return fmt::format("{:016x}", XXH3_64bits(values.data(), values.size() * sizeof(float)));
}

void add_tiles_in_flight(CLI::App& command, int& tiles_in_flight) {
  add_number(command, "--tiles-in-flight", tiles_in_flight, 1, 64,
             "Tiles of a worker that compute or store at once; 1: no tile computes while the one before stores");
}

void add_moe_options(CLI::App& command, MoeOptions& options) {
  command.add_option("--model", options.model, "Model whose layer to take (xstage list models)")->capture_default_str();
  add_number(command, "--ranks", options.ranks, 1, 1024, "Expert-parallel ranks");
  add_tokens_per_rank(command, options.tokens_per_rank);
  add_number(command, "--shrink", options.shrink, 1, 65536, "Divide hidden and intermediate by this");
  command.add_option("--routing", options.routing, "Synthetic routing (xstage list routings)")->capture_default_str();
  add_number(command, "--num-shared", options.num_shared, 0, 64, "Shared experts, which every token passes");
  command
      .add_option("--expert-map", options.expert_map,
                  "Ranks of the experts: contiguous, strided, or a CSV file with columns expert and rank")
      ->capture_default_str();
  add_number(command, "--capacity-rows", options.capacity_rows, std::int64_t{0},
             std::int64_t{std::numeric_limits<std::int32_t>::max()},
             "Rows that a rank has room to receive; 0: as many as come");
  command
      .add_option("--schedule", options.schedule,
                  "Order such as lag:8 (xstage list schedules), or file (a name with a dot or slash)")
      ->capture_default_str();
  add_file(command, "--schedule-out", options.schedule_out, "Write the explicit schedule to this file");
  command.add_option("--claim", options.claim, "How workers take tasks: static or counter")->capture_default_str();
  add_number(command, "--ring-blocks", options.ring_blocks, 0, std::numeric_limits<std::int32_t>::max(),
             "Row blocks whose activations a rank holds at once; 0: all");
  add_number(command, "--seed", options.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
             "Seed of everything random");
  command.add_option("--machine", options.machine, "Machine profile: file or name")->capture_default_str();
  command.add_option("--path", options.path, "Store path on the machine")->capture_default_str();
  command.add_option("--dst", options.dst, "Link to the peers on the machine")->capture_default_str();
  command.add_option("--dtype", options.dtype, "Products on the machine: bf16 or fp8")->capture_default_str();
  add_file(command, "--trace", options.trace, "Write a trace for ui.perfetto.dev to this file");
  add_json(command, options.json);
}

MoeCase make_case(const MoeOptions& options) {
  auto model = find_moe_model(options.model);
  model.shape.num_shared = options.num_shared;
  const auto shape = shrink(model.shape, options.shrink);
  require(options.topk_idx.empty() == options.topk_weights.empty(), "--topk-idx and --topk-weights go together");
  parse_claim(options.claim);
  MoePlacement placement{tokens_of_ranks(options, shape), experts_of(options, shape)};
  const auto num_tokens = std::accumulate(placement.tokens.begin(), placement.tokens.end(), std::int64_t{0});
  auto routing = options.topk_idx.empty()
                     ? make_routing(options.routing, num_tokens, shape.num_experts, shape.topk, options.seed)
                     : read_routing(options, shape);
  // One number says nothing about the tokens of a file.
  if (!options.topk_idx.empty() && options.tokens_per_rank.size() == 1) placement.tokens.clear();
  std::vector<float> hidden_states;
  if (!options.hidden_states.empty()) {
    hidden_states = read_hidden_states(options.hidden_states, routing.num_tokens, shape);
  }
  auto machine = load_machine(options.machine);
  if (options.sm_clock_ghz > 0) machine.sm_clock = {options.sm_clock_ghz};
  MoeTiling tiling;
  tiling.ring_blocks = options.ring_blocks;
  auto full_problem = make_problem(model.shape, tiling, options.ranks, routing, placement);
  auto problem = options.shrink == 1 ? full_problem : make_problem(shape, tiling, options.ranks, routing, placement);
  require_capacity(problem, capacity_of(problem, options.capacity_rows));
  MoeCase layer{model,
                shape,
                std::move(routing),
                std::move(hidden_states),
                std::move(machine),
                std::move(problem),
                std::move(full_problem),
                Order{},
                {},
                {}};
  if (names_file(options.schedule)) {
    layer.tasks = read_tasks(options.schedule, layer.problem);
    layer.schedule_name = std::filesystem::path(options.schedule).filename().string();
  } else {
    const int num_sms = layer.machine.num_sms;
    layer.order = parse_order(options.schedule, {default_experts_per_wave(layer.full_problem, num_sms), num_sms});
    layer.schedule_name = to_string(layer.order);
  }
  return layer;
}

MoeBytes bytes_of(const std::string& dtype) {
  // fp8 layers keep a bf16 combine: the sum over top-k needs the mantissa.
  if (dtype == "fp8") return {1, 1, 2};
  require(dtype == "bf16", "--dtype {}: expected bf16 or fp8", dtype);
  return {2, 2, 2};
}

std::vector<RankCondition> conditions_of(const MoeOptions& options) {
  if (options.late.empty() && options.slow.empty()) return {};
  std::vector<RankCondition> conditions(static_cast<std::size_t>(options.ranks));
  for (const auto& text : options.late) {
    const auto late = parse_of_rank("--late", text, options.ranks, 0, 1e9, "US");
    conditions[late.rank].start = {late.value * 1e3};
  }
  for (const auto& text : options.slow) {
    const auto slow = parse_of_rank("--slow", text, options.ranks, 0.01, 100, "FACTOR");
    conditions[slow.rank].clock_factor = slow.value;
  }
  return conditions;
}

Timeline simulate_on(const Schedule& schedule, const Machine& machine, const MoeOptions& options) {
  SimOptions sim;
  sim.workers_per_rank = machine.num_sms;
  sim.claim = parse_claim(options.claim);
  sim.record_levels = sim.record_spans = !options.trace.empty();
  sim.tiles_in_flight = options.tiles_in_flight;
  sim.ranks = conditions_of(options);
  return simulate(schedule, sim_machine(machine, options.dtype, options.path, options.dst, machine.num_sms), sim);
}

Prediction predict_full(const MoeCase& layer, const MoeOptions& options) {
  const auto& problem = layer.full_problem;
  const auto& machine = layer.machine;
  const auto bytes = bytes_of(options.dtype);
  const double flops_per_ns = machine.rate(options.dtype).value * machine.num_sms * machine.sm_clock.value;
  const auto drain = machine.port(options.path, options.dst).drain;
  Prediction prediction{rho(problem.shape(), problem.num_ranks(), bytes.combine, flops_per_ns, drain.value), {}, {}};
  std::vector<Order> orders{{OrderKind::serial}, {OrderKind::wave, default_experts_per_wave(problem, machine.num_sms)}};
  if (std::ranges::find(orders, layer.order) == orders.end()) orders.push_back(layer.order);
  Progress progress("simulate");
  // The ring was chosen for one order; others may need a larger one.
  const auto without_ring = problem.with_ring(0);
  for (const auto& order : orders) {
    const bool chosen = order == layer.order && layer.tasks.empty();
    auto timeline = simulate_on((chosen ? problem : without_ring).schedule(order, bytes), machine, options);
    prediction.orders.emplace_back(to_string(order), timeline.makespan);
    if (order == layer.order) prediction.timeline = std::move(timeline);
    progress.update(static_cast<double>(prediction.orders.size()) / static_cast<double>(orders.size()));
  }
  return prediction;
}

Json to_json(const MoeCase& layer, const MoeOptions& options, const Prediction& prediction) {
  Json plan;
  plan["machine"] = layer.machine.name;
  plan["machine_source"] = layer.machine.source;
  plan["path"] = options.path;
  plan["dst"] = options.dst;
  plan["dtype"] = options.dtype;
  plan["hidden"] = layer.model.shape.hidden;
  plan["intermediate"] = layer.model.shape.intermediate;
  plan["schedule"] = to_string(layer.order);
  plan["rho"] = prediction.rho;
  plan["predicted_us"] = prediction.timeline.makespan.value * 1e-3;
  plan["breakdown"] = xs::to_json(breakdown(prediction.timeline));
  plan["orders"] = Json::array();
  for (const auto& [name, time] : prediction.orders) {
    plan["orders"].push_back({{"schedule", name}, {"predicted_us", time.value * 1e-3}});
  }
  return plan;
}

}  // namespace xs::cli
