#include "xstage/model/machine.hpp"

#include <charconv>
#include <cmath>

#include "xstage/core/embedded.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

constexpr auto kKind = "machine_profile";

// The copy size in the name of a bulk path, "bulk8192"; 0 for other paths.
double copy_size(const std::string& path) {
  constexpr std::string_view kBulk = "bulk";
  std::int64_t size = 0;
  const char* last = path.data() + path.size();
  if (!path.starts_with(kBulk)) return 0;
  const auto [end, error] = std::from_chars(path.data() + kBulk.size(), last, size);
  return error == std::errc() && end == last && size > 0 ? static_cast<double>(size) : 0;
}

FittedPort port_from_json(const Json& json, const std::string& where) {
  FittedPort port;
  PortParams& params = port.params;
  params.path = field<std::string>(json, "path", where);
  params.dst = field<std::string>(json, "dst", where);
  params.burst_overhead = {field_at_least(0.0, json, "burst_overhead_cycles", where)};
  params.free_issue = {positive_field(json, "free_issue_bytes_per_cycle", where)};
  if (json.contains("engine_capacity_bytes")) {
    params.engine = {positive_field(json, "engine_bytes_per_cycle", where)};
    params.engine_capacity = {positive_field(json, "engine_capacity_bytes", where)};
  }
  params.drain = {positive_field(json, "drain_bytes_per_ns", where)};
  params.capacity = {positive_field(json, "capacity_bytes", where)};
  params.worker_capacity = {positive_field(json, "worker_capacity_bytes", where)};
  params.disorder = field_at_least(0.0, json, "disorder", where);
  params.visible_latency = {field_at_least(0.0, json, "visible_latency_ns", where)};
  params.group_fairness = field_at_least(0.0, json, "group_fairness", where);
  params.spread = field_at_least(0.0, json, "spread", where);
  port.num_patterns = field_at_least(0, json, "patterns", where);
  port.mean_abs_rel_error = field_at_least(0.0, json, "mean_abs_rel_error", where);
  if (json.contains("held_out_error")) port.held_out_error = field_at_least(0.0, json, "held_out_error", where);
  port.saturated = field<bool>(json, "saturated", where);
  for (const auto& entry : field<std::vector<Json>>(json, "intervals", where)) {
    const auto place = fmt::format("{}: intervals[{}]", where, port.parameters.size());
    const auto number = [&](const char* name) { return field_at_least(0.0, entry, name, place); };
    port.parameters.push_back({field<std::string>(entry, "name", place), number("value"), number("low"), number("high"),
                               field<bool>(entry, "identified", place)});
  }
  return port;
}

Machine machine_from_json(const Json& json, const std::string& where) {
  Machine machine;
  machine.name = field<std::string>(json, "name", where);
  machine.chip = field<std::string>(json, "chip", where);
  machine.driver = field<std::string>(json, "driver", where);
  machine.date = field<std::string>(json, "date", where);
  machine.source = field<std::string>(json, "source", where);
  machine.num_sms = field_at_least(1, json, "num_sms", where);
  machine.sm_clock = {positive_field(json, "sm_clock_ghz", where)};
  machine.memory = {positive_field(json, "memory_bytes_per_ns", where)};
  machine.memory_source = field<std::string>(json, "memory_source", where);
  if (json.contains("sm_groups")) machine.sm_groups = field<std::vector<int>>(json, "sm_groups", where);
  require(machine.sm_groups.empty() || machine.sm_groups.size() == static_cast<std::size_t>(machine.num_sms),
          "{}: \"sm_groups\" should have one entry for each of {} SMs, found {}", where, machine.num_sms,
          machine.sm_groups.size());
  for (const auto& rate : field<std::vector<Json>>(json, "compute", where)) {
    const auto place = fmt::format("{}: compute[{}]", where, machine.compute.size());
    machine.compute.push_back({field<std::string>(rate, "dtype", place),
                               {positive_field(rate, "flops_per_cycle_per_sm", place)},
                               field<std::string>(rate, "source", place)});
  }
  for (const auto& port : field<std::vector<Json>>(json, "ports", where)) {
    machine.ports.push_back(port_from_json(port, fmt::format("{}: ports[{}]", where, machine.ports.size())));
  }
  return machine;
}

}  // namespace

PortParams Machine::port(const std::string& path, const std::string& dst) const {
  std::vector<std::string> others;
  const PortParams* nearest = nullptr;
  double factor = 1;
  for (const auto& port : ports) {
    const auto& known = port.params;
    others.push_back(known.path + " to " + known.dst);
    if (known.dst != dst) continue;
    const double wanted_size = copy_size(path), known_size = copy_size(known.path);
    if (known.path != path && (wanted_size == 0 || known_size == 0)) continue;
    const double scale = known.path == path ? 1 : wanted_size / known_size;
    if (nearest != nullptr && std::abs(std::log(scale)) >= std::abs(std::log(factor))) continue;
    nearest = &known;
    factor = scale;
  }
  require(nearest != nullptr, "machine {}: no port for path {} to {}; it has: {}. Measure one and run xstage fit", name,
          path, dst, fmt::join(others, ", "));
  PortParams params = *nearest;
  params.path = path;
  params.free_issue = params.free_issue * factor;
  params.engine_capacity = params.engine_capacity * factor;
  params.groups = sm_groups;
  return params;
}

FlopsPerCycle Machine::rate(const std::string& dtype) const {
  std::vector<std::string> known;
  for (const auto& rate : compute) {
    if (rate.dtype == dtype) return rate.per_sm;
    known.push_back(rate.dtype);
  }
  fail(ErrorKind::usage, "machine {}: no compute rate for dtype {}; it has: {}. Add one to \"compute\" in the profile",
       name, dtype, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

std::vector<std::string> embedded_machines() {
  std::vector<std::string> names;
  for (const auto& file : embedded_files()) {
    if (file.name.ends_with(".json")) names.emplace_back(file.name.substr(0, file.name.size() - 5));
  }
  return names;
}

Machine load_machine(const std::string& name_or_file) {
  for (const auto& file : embedded_files()) {
    if (file.name == name_or_file + ".json") return parse_machine(file.text, name_or_file);
  }
  require(std::filesystem::exists(name_or_file), "machine {}: neither a file nor a known profile; known: {}",
          name_or_file, fmt::join(embedded_machines(), ", "));
  return parse_machine(read_text(name_or_file), name_or_file);
}

Machine parse_machine(std::string_view text, const std::string& name) {
  return machine_from_json(parse_document(text, kKind, name), name);
}

Json to_json(const Machine& machine) {
  Json json = new_document(kKind);
  json["name"] = machine.name;
  json["chip"] = machine.chip;
  json["driver"] = machine.driver;
  json["date"] = machine.date;
  json["source"] = machine.source;
  json["num_sms"] = machine.num_sms;
  json["sm_clock_ghz"] = machine.sm_clock.value;
  json["memory_bytes_per_ns"] = machine.memory.value;
  json["memory_source"] = machine.memory_source;
  if (!machine.sm_groups.empty()) json["sm_groups"] = machine.sm_groups;
  json["compute"] = Json::array();
  for (const auto& rate : machine.compute) {
    json["compute"].push_back(
        {{"dtype", rate.dtype}, {"flops_per_cycle_per_sm", rate.per_sm.value}, {"source", rate.source}});
  }
  json["ports"] = Json::array();
  for (const auto& port : machine.ports) {
    const auto& params = port.params;
    Json entry = {{"path", params.path},
                  {"dst", params.dst},
                  {"burst_overhead_cycles", params.burst_overhead.value},
                  {"free_issue_bytes_per_cycle", params.free_issue.value},
                  {"drain_bytes_per_ns", params.drain.value},
                  {"capacity_bytes", params.capacity.value},
                  {"worker_capacity_bytes", params.worker_capacity.value},
                  {"disorder", params.disorder},
                  {"visible_latency_ns", params.visible_latency.value},
                  {"group_fairness", params.group_fairness},
                  {"spread", params.spread},
                  {"patterns", port.num_patterns},
                  {"mean_abs_rel_error", port.mean_abs_rel_error},
                  {"saturated", port.saturated},
                  {"intervals", Json::array()}};
    if (port.held_out_error) entry["held_out_error"] = *port.held_out_error;
    if (params.engine_capacity > Bytes{0}) {
      entry["engine_bytes_per_cycle"] = params.engine.value;
      entry["engine_capacity_bytes"] = params.engine_capacity.value;
    }
    for (const auto& parameter : port.parameters) {
      entry["intervals"].push_back({{"name", parameter.name},
                                    {"value", parameter.value},
                                    {"low", parameter.low},
                                    {"high", parameter.high},
                                    {"identified", parameter.identified}});
    }
    json["ports"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace xs
