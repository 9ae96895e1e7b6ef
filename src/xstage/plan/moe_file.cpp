#include <algorithm>

#include "xstage/core/json.hpp"
#include "xstage/plan/moe_problem.hpp"

namespace xs {
namespace {

constexpr auto kKind = "moe_schedule";

std::vector<Task> tasks_from_json(const Json& json, const std::string& where) {
  require(json.is_array(), "{}: expected an array of tasks, found {}", where, json.type_name());
  const auto is_number = &FieldType<std::int32_t>::holds;
  std::vector<Task> tasks;
  for (const auto& entry : json) {
    const auto place = fmt::format("{}[{}]", where, tasks.size());
    require(entry.is_array() && entry.size() == 3 && entry[0].is_string() && is_number(entry[1]) && is_number(entry[2]),
            "{}: expected [\"kind\", block, tile], found {}", place, excerpt(entry.dump()));
    const auto name = entry[0].get<std::string>();
    const auto kind = std::ranges::find(kTaskKindNames, name);
    require(kind != std::end(kTaskKindNames), "{}: task kind \"{}\" is unknown; expected one of {}", place,
            excerpt(name), fmt::join(kTaskKindNames, ", "));
    tasks.push_back({static_cast<TaskKind>(kind - std::begin(kTaskKindNames)), entry[1].get<std::int32_t>(),
                     entry[2].get<std::int32_t>()});
  }
  return tasks;
}

MoeProblem problem_from_json(const Json& json, const std::string& where) {
  const MoeShape shape{field<std::int64_t>(json, "hidden", where), field<std::int64_t>(json, "intermediate", where),
                       field<int>(json, "num_experts", where), field<int>(json, "topk", where),
                       json.contains("num_shared") ? field<int>(json, "num_shared", where) : 0};
  const MoeTiling tiling{field<int>(json, "block_rows", where),
                         field<int>(json, "linear1_cols", where),
                         field<int>(json, "linear2_cols", where),
                         field<int>(json, "reduce_tokens", where),
                         json.contains("ring_blocks") ? field<int>(json, "ring_blocks", where) : 0,
                         json.contains("dispatch_parts") ? field<int>(json, "dispatch_parts", where) : 1};
  const auto num_ranks = field<int>(json, "num_ranks", where);
  const auto num_tokens = field<std::int64_t>(json, "num_tokens", where);
  auto rows = field<std::vector<std::int32_t>>(json, "rows", where);
  try {
    MoePlacement placement;
    if (json.contains("tokens_per_rank")) {
      placement.tokens = field<std::vector<std::int64_t>>(json, "tokens_per_rank", where);
    }
    if (json.contains("holders")) {
      placement.experts = {field<std::vector<std::vector<std::int32_t>>>(json, "holders", where), num_ranks};
    }
    return {shape, tiling, complete(std::move(placement), shape, num_ranks, num_tokens), std::move(rows)};
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
}

}  // namespace

Json to_json(const MoeProblem& problem, const Schedule& schedule) {
  Json json = new_document(kKind);
  const auto& shape = problem.shape();
  const auto& tiling = problem.tiling();
  json["problem"] = {{"hidden", shape.hidden},
                     {"intermediate", shape.intermediate},
                     {"num_experts", shape.num_experts},
                     {"topk", shape.topk},
                     {"num_ranks", problem.num_ranks()},
                     {"num_tokens", problem.num_tokens()},
                     {"block_rows", tiling.block_rows},
                     {"linear1_cols", tiling.linear1_cols},
                     {"linear2_cols", tiling.linear2_cols},
                     {"reduce_tokens", tiling.reduce_tokens},
                     {"ring_blocks", tiling.ring_blocks},
                     {"rows", problem.rows()}};
  // What a problem need not say: dispatch in one part, no shared expert, tokens and experts in even parts.
  const auto& placement = problem.placement();
  const auto even = complete({}, shape, problem.num_ranks(), problem.num_tokens());
  if (tiling.dispatch_parts > 1) json["problem"]["dispatch_parts"] = tiling.dispatch_parts;
  if (shape.num_shared > 0) json["problem"]["num_shared"] = shape.num_shared;
  if (placement.tokens != even.tokens) json["problem"]["tokens_per_rank"] = placement.tokens;
  if (placement.experts != even.experts) {
    json["problem"]["holders"] = Json::array();
    for (int expert = 0; expert < shape.num_experts; ++expert) {
      json["problem"]["holders"].push_back(placement.experts.holders(expert));
    }
  }
  json["ranks"] = Json::array();
  for (const auto& rank : schedule.ranks) {
    Json tasks = Json::array();
    for (const Task& task : rank.tasks) {
      tasks.push_back({kTaskKindNames[static_cast<std::size_t>(task.kind)], task.block, task.tile});
    }
    json["ranks"].push_back(std::move(tasks));
  }
  return json;
}

MoeScheduleFile read_moe_schedule(const std::filesystem::path& file) {
  return parse_moe_schedule(read_text(file), file.string());
}

MoeScheduleFile parse_moe_schedule(std::string_view text, const std::string& name) {
  const auto json = parse_document(text, kKind, name);
  MoeScheduleFile read{problem_from_json(field<Json>(json, "problem", name), name + ": problem"), {}};
  for (const auto& rank : field<std::vector<Json>>(json, "ranks", name)) {
    read.tasks.push_back(tasks_from_json(rank, fmt::format("{}: ranks[{}]", name, read.tasks.size())));
  }
  require(read.tasks.size() == static_cast<std::size_t>(read.problem.num_ranks()),
          "{}: the problem has {} ranks, the schedule {}", name, read.problem.num_ranks(), read.tasks.size());
  return read;
}

}  // namespace xs
