// check, list: look without running.

#include <limits>
#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/explore/protocols.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/moe_problem.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

struct CheckOptions {
  std::string file;
  std::int64_t max_tail = -1;
  std::int64_t capacity_bytes = -1;
  int workers = 1;
  bool protocols = false;
  bool json = false;
};

Json to_json(const Schedule& schedule, const CheckReport& report) {
  Json document = new_document("schedule_check");
  document["valid"] = report.faults.empty();
  document["faults"] = Json::array();
  for (const auto& fault : report.faults) {
    document["faults"].push_back({{"kind", to_string(fault.kind)}, {"text", fault.text}});
  }
  document["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const auto& figures = report.ranks[rank];
    Json rings = Json::object();
    for (std::size_t region = 0; region < schedule.regions.size(); ++region) {
      const auto& [name, num_slots, ring] = schedule.regions[region];
      if (ring) rings[name] = {{"slots", num_slots}, {"bound", figures.ring_bounds[region]}};
    }
    document["ranks"].push_back({{"tasks", schedule.ranks[rank].tasks.size()},
                                 {"tail_tasks", figures.tail_tasks},
                                 {"largest_burst_bytes", figures.largest_burst},
                                 {"rings", rings}});
  }
  return document;
}

Table to_table(const Schedule& schedule, const CheckReport& report) {
  std::vector<std::string> header{"rank", "tasks", "tail", "largest burst"};
  for (const auto& region : schedule.regions) {
    if (region.ring) header.push_back(region.name + " (needed)");
  }
  Table table(header);
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const auto& figures = report.ranks[rank];
    std::vector<std::string> row{std::to_string(rank), std::to_string(schedule.ranks[rank].tasks.size()),
                                 std::to_string(figures.tail_tasks), fmt::format("{} B", figures.largest_burst)};
    for (std::size_t region = 0; region < schedule.regions.size(); ++region) {
      const auto& [name, num_slots, ring] = schedule.regions[region];
      if (ring) row.push_back(fmt::format("{} ({})", num_slots, figures.ring_bounds[region]));
    }
    table.add(std::move(row));
  }
  return table;
}

void check_file(const CheckOptions& options) {
  const auto read = read_moe_schedule(options.file);
  const auto schedule = read.problem.schedule(read.tasks);
  CheckLimits limits;
  if (options.max_tail >= 0) limits.tail_tasks = options.max_tail;
  if (options.capacity_bytes >= 0) limits.capacity_bytes = options.capacity_bytes;
  limits.workers = options.workers;
  const auto report = inspect(schedule, limits);
  if (options.json) print(to_json(schedule, report));
  if (!report.faults.empty()) throw Error(ErrorKind::verification, describe(report.faults, options.file));
  if (options.json) return;
  std::size_t num_tasks = 0;
  for (const auto& rank : schedule.ranks) num_tasks += rank.tasks.size();
  fmt::print("{}=> {}: valid; {} ranks, {} tasks, free of deadlock, every slot written before it is read.\n",
             to_table(schedule, report).text(), options.file, schedule.ranks.size(), num_tasks);
}

Json to_json(const explore::ProtocolResult& result) {
  Json json{{"protocol", result.protocol}, {"mutant", nullptr}, {"expected", nullptr}, {"fault", nullptr}};
  if (const auto& mutant = result.mutant) {
    json["mutant"] = mutant->name;
    json["expected"] = {{"kind", explore::to_string(mutant->fault)}, {"place", mutant->place}};
  }
  if (const auto& fault = result.fault) {
    json["fault"] = {{"kind", explore::to_string(fault->kind)},
                     {"place", fault->place},
                     {"text", fault->text},
                     {"steps", fault->steps}};
  }
  json["states"] = result.num_states;
  json["passed"] = result.passed;
  return json;
}

void check_protocols(bool json) {
  Table table({"protocol", "mutant", "states", "expected", "found"}, "llrll");
  Json rows = Json::array();
  std::size_t num_mutants = 0;
  std::string failed;
  const auto name = [](const auto& kind, const auto& place) {
    return fmt::format("{} of {}", explore::to_string(kind), place);
  };
  for (const auto& result : explore::explore_protocols()) {
    const auto& [protocol, mutant, num_states, fault, passed] = result;
    table.add({protocol, mutant ? mutant->name : "", std::to_string(num_states),
               mutant ? name(mutant->fault, mutant->place) : "no fault",
               fault ? name(fault->kind, fault->place) : "no fault"});
    rows.push_back(to_json(result));
    num_mutants += mutant ? 1 : 0;
    if (passed) continue;
    failed += fmt::format("\n  {}{}: ", protocol, mutant ? ", " + mutant->name : "");
    failed += fault ? fmt::format("{}\n    {}", fault->text, fmt::join(fault->steps, "\n    ")) : "no fault";
  }
  if (json) {
    Json document = new_document("protocol_check");
    document["valid"] = failed.empty();
    document["results"] = rows;
    print(document);
  } else {
    fmt::print("{}", table.text());
  }
  if (!failed.empty()) fail(ErrorKind::verification, "a protocol does not hold, or a mutant survives:{}", failed);
  if (!json)
    fmt::print("=> {} protocols hold in every outcome; their {} mutants are killed.\n", rows.size() - num_mutants,
               num_mutants);
}

struct Listing {
  Table table;
  Json json;
};

Listing list_models() {
  Listing list{Table({"model", "hidden", "intermediate", "experts", "top-k", "shared", "shape from"}, "lrrrrrl"),
               Json::array()};
  for (const auto& model : list_moe_models()) {
    const auto& shape = model.shape;
    list.table.add({model.name, std::to_string(shape.hidden), std::to_string(shape.intermediate),
                    std::to_string(shape.num_experts), std::to_string(shape.topk), std::to_string(model.shared_experts),
                    model.verified ? "its configuration" : "unverified"});
    list.json.push_back({{"name", model.name},
                         {"hidden", shape.hidden},
                         {"intermediate", shape.intermediate},
                         {"num_experts", shape.num_experts},
                         {"topk", shape.topk},
                         {"shared_experts", model.shared_experts},
                         {"verified", model.verified}});
  }
  return list;
}

template <class Infos>
Listing list_infos(const char* header, const Infos& infos) {
  Listing list{Table({header, "what it is"}, "ll"), Json::array()};
  for (const auto& info : infos) {
    list.table.add({info.name, info.what});
    list.json.push_back({{"name", info.name}, {"what", info.what}});
  }
  return list;
}

Listing list_machines() {
  Listing list{Table({"machine", "chip", "SMs", "ports", "date"}, "llrrl"), Json::array()};
  for (const auto& name : embedded_machines()) {
    const auto machine = load_machine(name);
    list.table.add(
        {name, machine.chip, std::to_string(machine.num_sms), std::to_string(machine.ports.size()), machine.date});
    list.json.push_back({{"name", name},
                         {"chip", machine.chip},
                         {"num_sms", machine.num_sms},
                         {"ports", machine.ports.size()},
                         {"date", machine.date},
                         {"source", machine.source}});
  }
  return list;
}

Listing listing(const std::string& what) {
  if (what == "models") return list_models();
  if (what == "routings") return list_infos("routing", list_routings());
  if (what == "schedules") return list_infos("schedule", list_orders());
  require(what == "machines", "list: expected models, routings, schedules or machines; found {}",
          what.empty() ? "nothing" : "\"" + what + "\"");
  return list_machines();
}

}  // namespace

void add_check(CLI::App& app) {
  auto* command = app.add_subcommand("check", "Prove a schedule file: tiles, waits, use of memory, no deadlock");
  const auto options = std::make_shared<CheckOptions>();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  auto* file = add_file(*command, "schedule", options->file, "Schedule file (--schedule-out of run and simulate)");
  command
      ->add_flag("--protocols", options->protocols,
                 "Instead: explore the publish and wait protocols on weak memory, and their mutants")
      ->excludes(file);
  add_number(*command, "--max-tail", options->max_tail, std::int64_t{0}, kMost,
             "Most products at a rank's end that all send to peers")
      ->default_str("any");
  add_number(*command, "--capacity-bytes", options->capacity_bytes, std::int64_t{0}, kMost,
             "Most bytes outstanding when each worker has one burst on its way")
      ->default_str("any");
  add_number(*command, "--workers", options->workers, 1, 4096, "Workers of every rank, for --capacity-bytes");
  add_json(*command, options->json);
  command->callback([options, file] {
    if (options->protocols) return check_protocols(options->json);
    if (file->empty()) throw CLI::RequiredError("a schedule, or --protocols,");
    check_file(*options);
  });
}

void add_list(CLI::App& app) {
  struct Options {
    std::string what;
    bool json = false;
  };
  auto* command = app.add_subcommand("list", "What there is: models, routings, schedules, machines");
  const auto options = std::make_shared<Options>();
  command->add_option("what", options->what, "models, routings, schedules or machines");
  add_json(*command, options->json);
  command->callback([options] {
    const auto list = listing(options->what);
    if (!options->json) return fmt::print("{}", list.table.text());
    Json document = new_document("list");
    document[options->what] = list.json;
    print(document);
  });
}

}  // namespace xs::cli
