// check, list: look without running.

#include <memory>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/moe_problem.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

void check_file(const std::string& file, bool json) {
  const auto read = read_moe_schedule(file);
  const auto schedule = read.problem.schedule(read.tasks);
  const auto faults = check(schedule);
  std::size_t num_tasks = 0;
  for (const auto& rank : schedule.ranks) num_tasks += rank.tasks.size();
  if (json) {
    Json document = new_document("schedule_check");
    document["valid"] = faults.empty();
    document["ranks"] = schedule.ranks.size();
    document["tasks"] = num_tasks;
    document["faults"] = Json::array();
    for (const auto& fault : faults)
      document["faults"].push_back({{"kind", to_string(fault.kind)}, {"text", fault.text}});
    print(document);
  }
  require_valid(schedule, file);
  if (!json)
    fmt::print("=> {}: valid; {} ranks, {} tasks, free of deadlock.\n", file, schedule.ranks.size(), num_tasks);
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
  struct Options {
    std::string file;
    bool json = false;
  };
  auto* command = app.add_subcommand("check", "Prove a schedule file: every tile once, every wait raised, no deadlock");
  const auto options = std::make_shared<Options>();
  add_file(*command, "schedule", options->file, "Schedule file (--schedule-out of run and simulate)")->required();
  add_json(*command, options->json);
  command->callback([options] { check_file(options->file, options->json); });
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
