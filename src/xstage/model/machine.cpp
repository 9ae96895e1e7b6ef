#include "xstage/model/machine.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "xstage/core/embedded.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

PortParams between(const PortParams& a, const PortParams& b, int workers) {
  const double t = (std::log(workers) - std::log(a.workers)) / (std::log(b.workers) - std::log(a.workers));
  const auto mix = [t](auto x, auto y) { return x * (1 - t) + y * t; };
  PortParams mixed = a;
  mixed.workers = workers;
  mixed.burst_overhead = mix(a.burst_overhead, b.burst_overhead);
  mixed.free_issue = mix(a.free_issue, b.free_issue);
  mixed.drain = mix(a.drain, b.drain);
  mixed.capacity = mix(a.capacity, b.capacity);
  mixed.visible_latency = mix(a.visible_latency, b.visible_latency);
  return mixed;
}

FittedPort port_from_json(const Json& json, const std::string& where) {
  FittedPort port;
  PortParams& params = port.params;
  params.path = field<std::string>(json, "path", where);
  params.dst = field<std::string>(json, "dst", where);
  params.workers = field_at_least(1, json, "workers", where);
  params.burst_overhead = {field_at_least(0.0, json, "burst_overhead_cycles", where)};
  params.free_issue = {positive_field(json, "free_issue_bytes_per_cycle", where)};
  params.drain = {positive_field(json, "drain_bytes_per_ns", where)};
  params.capacity = {positive_field(json, "capacity_bytes", where)};
  params.visible_latency = {field_at_least(0.0, json, "visible_latency_ns", where)};
  port.num_patterns = field_at_least(0, json, "patterns", where);
  port.mean_abs_rel_error = field_at_least(0.0, json, "mean_abs_rel_error", where);
  port.saturated = field<bool>(json, "saturated", where);
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

PortParams Machine::port(const std::string& path, const std::string& dst, int workers) const {
  std::vector<const PortParams*> fitted;
  std::set<std::string> others;
  for (const auto& port : ports) {
    others.insert(port.params.path + " to " + port.params.dst);
    if (port.params.path == path && port.params.dst == dst) fitted.push_back(&port.params);
  }
  require(!fitted.empty(), "machine {}: no port for path {} to {}; it has: {}. Measure one and run xstage fit", name,
          path, dst, fmt::join(others, ", "));
  std::ranges::sort(fitted, {}, &PortParams::workers);
  const auto above = std::ranges::find_if(fitted, [&](auto* port) { return port->workers >= workers; });
  if (above == fitted.end()) return *fitted.back();
  if (above == fitted.begin() || (*above)->workers == workers) return **above;
  return between(**(above - 1), **above, workers);
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
  constexpr auto kKind = "machine_profile";
  for (const auto& file : embedded_files()) {
    if (file.name == name_or_file + ".json") {
      return machine_from_json(parse_document(file.text, kKind, name_or_file), name_or_file);
    }
  }
  require(std::filesystem::exists(name_or_file), "machine {}: neither a file nor a known profile; known: {}",
          name_or_file, fmt::join(embedded_machines(), ", "));
  return machine_from_json(read_document(name_or_file, kKind), name_or_file);
}

Json to_json(const Machine& machine) {
  Json json = new_document("machine_profile");
  json["name"] = machine.name;
  json["chip"] = machine.chip;
  json["driver"] = machine.driver;
  json["date"] = machine.date;
  json["source"] = machine.source;
  json["num_sms"] = machine.num_sms;
  json["sm_clock_ghz"] = machine.sm_clock.value;
  json["memory_bytes_per_ns"] = machine.memory.value;
  json["memory_source"] = machine.memory_source;
  json["compute"] = Json::array();
  for (const auto& rate : machine.compute) {
    json["compute"].push_back(
        {{"dtype", rate.dtype}, {"flops_per_cycle_per_sm", rate.per_sm.value}, {"source", rate.source}});
  }
  json["ports"] = Json::array();
  for (const auto& port : machine.ports) {
    const auto& params = port.params;
    json["ports"].push_back({{"path", params.path},
                             {"dst", params.dst},
                             {"workers", params.workers},
                             {"burst_overhead_cycles", params.burst_overhead.value},
                             {"free_issue_bytes_per_cycle", params.free_issue.value},
                             {"drain_bytes_per_ns", params.drain.value},
                             {"capacity_bytes", params.capacity.value},
                             {"visible_latency_ns", params.visible_latency.value},
                             {"patterns", port.num_patterns},
                             {"mean_abs_rel_error", port.mean_abs_rel_error},
                             {"saturated", port.saturated}});
  }
  return json;
}

}  // namespace xs
