#include "xstage/core/fuzz_support.hpp"
#include "xstage/model/machine.hpp"

namespace xs {

// The embedded profiles, cut to a machine of few SMs and two ports.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& name : embedded_machines()) {
    auto machine = load_machine(name);
    machine.num_sms = 4;
    if (!machine.sm_groups.empty()) machine.sm_groups.resize(4);
    if (machine.ports.size() > 2) machine.ports.erase(machine.ports.begin() + 2, machine.ports.end());
    seeds.push_back(to_text(to_json(machine)));
  }
  return seeds;
}

void fuzz_one(std::string_view input) {
  const auto machine = if_accepted([&] { return parse_machine(input, "fuzz.json"); });
  if (!machine) return;
  const auto written = to_json(*machine);
  check(to_json(parse_machine(to_text(written), "again.json")) == written, "another machine when read again");
  const auto document = Json::parse(input);
  const auto fields = written.flatten();
  for (const auto& [field_path, value] : fields.items()) {
    const bool of_writer = field_path == "/xstage" || value.is_null();  // null: an empty array
    check(of_writer || document.at(Json::json_pointer(field_path)) == value, "{} is written as {}", field_path,
          value.dump());
  }
  for (const auto& port : machine->ports) {
    const auto params = machine->port(port.params.path, port.params.dst);
    check(params.path == port.params.path && params.dst == port.params.dst, "another port than the one asked for");
    if_accepted([&] { return machine->port("bulk4096", port.params.dst); });
  }
  for (const auto& rate : machine->compute) check(machine->rate(rate.dtype).value > 0, "a rate of nothing");
}

}  // namespace xs
