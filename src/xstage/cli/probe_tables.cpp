#include "xstage/cli/probe_tables.hpp"

#include <algorithm>

#include "xstage/core/json.hpp"
#include "xstage/report/table.hpp"

namespace xs::cli {
namespace {

constexpr double kKeptLoads = 0.95;  // what a pace should leave of the neighbours' loads

std::string not_identified(const FittedPort& port) {
  std::string names;
  for (const auto& parameter : port.parameters) {
    if (!parameter.identified) names += (names.empty() ? "" : ", ") + parameter.name;
  }
  return names;
}

// "371 ± 8" of a parameter; ">= 371" where the samples show no more than that.
std::string with_interval(const FittedPort& port, const std::string& name, double value, double unit) {
  const auto found = std::ranges::find(port.parameters, name, &FittedParameter::name);
  if (!port.saturated) return fmt::format(">= {:.0f}", value / unit);
  if (found == port.parameters.end() || !found->identified) return fmt::format("({:.0f})", value / unit);
  return fmt::format("{:.0f} [{:.0f}, {:.0f}]", value / unit, found->low / unit, found->high / unit);
}

const char* name_of(Completion completion) {
  return completion == Completion::issued        ? "issued"
         : completion == Completion::source_free ? "source free"
                                                 : "remote visible";
}

}  // namespace

std::string port_name(const PortParams& port) { return port.path + " to " + port.dst; }

std::string errors_of(const FittedPort& port) {
  auto text = fmt::format("{} patterns, mean error {}", port.num_patterns, percent(port.mean_abs_rel_error));
  if (port.held_out_error) text += fmt::format(", {} on patterns held out", percent(*port.held_out_error));
  return text;
}

void print_ports(const Machine& machine, const std::string& samples, const std::string& written_to) {
  Table table({"port", "free B/clk/SM", "drain GB/s", "capacity KiB", "patterns", "mean error", "held out"});
  const FittedPort* best = nullptr;  // for the closing line: the surest port, to a peer if there is one
  const auto score = [](const FittedPort& port) {
    return (port.params.dst == "nvlink" ? 0 : 1) + port.mean_abs_rel_error + 1.0 / port.num_patterns;
  };
  std::string verdicts;
  for (const auto& port : machine.ports) {
    const auto& params = port.params;
    table.add({port_name(params), fmt::format("{:.1f}", params.free_issue.value),
               with_interval(port, "drain_bytes_per_ns", params.drain.value, 1),
               with_interval(port, "capacity_bytes", params.capacity.value, 1024), std::to_string(port.num_patterns),
               percent(port.mean_abs_rel_error), port.held_out_error ? percent(*port.held_out_error) : "-"});
    if (const auto names = not_identified(port); !names.empty()) {
      verdicts += fmt::format("{}: these samples do not identify {}\n", port_name(params), names);
    }
    if (port.saturated && (best == nullptr || score(port) < score(*best))) best = &port;
  }
  fmt::print("{} at {:.2f} GHz, {}\n{}", machine.chip, machine.sm_clock.value, samples, table.text());
  fmt::print("[low, high]: 95 % interval; (value): not identified; >=: no full port was seen, lower bound\n{}",
             verdicts);
  if (!written_to.empty()) fmt::print("written to {}\n", written_to);
  if (best == nullptr) return fmt::print("=> None of these patterns fills its port: every store was free.\n");
  fmt::print(
      "=> Measured: SMs of {} store {} for free until {:.1f} MB are outstanding; then they wait for a link that drains "
      "{:.0f} GB/s ({}).\n",
      machine.chip, port_name(best->params), best->params.capacity_of(machine.num_sms).value * 1e-6,
      best->params.drain.value, errors_of(*best));
}

void print_patterns(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns) {
  Table table({"workers", "bytes each", "gap us", "awaited", "bursts", "repeats", "issue us", "95 % interval",
               "free us", "stalled"},
              "rrrlrrrrrr");
  const auto us = [&](double cycles) { return (Cycles{cycles} / target.clock).value * 1e-3; };
  for (const auto& probed : patterns) {
    const auto& [pattern, issue, done, gap, free] = probed;
    table.add({std::to_string(pattern.workers), fmt::format("{:.0f}", pattern.bytes.value),
               fmt::format("{:.1f}", us(gap.median())), name_of(pattern.await), std::to_string(pattern.bursts),
               std::to_string(issue.count()), fmt::format("{:.1f}", us(issue.median())),
               fmt::format("[{:.1f}, {:.1f}]", us(issue.low()), us(issue.high())),
               fmt::format("{:.1f}", us(free.value)), fmt::format("{:.0f} %", 100 * probed.stalled_share())});
  }
  fmt::print("{}: {} to {}\n{}", target.chip, target.path, target.dst, table.text());
}

Json to_json(const std::vector<ProbedPattern>& patterns) {
  Json entries = Json::array();
  for (const auto& probed : patterns) {
    const auto& [pattern, issue, done, gap, free] = probed;
    entries.push_back({{"workers", pattern.workers},
                       {"bytes", pattern.bytes.value},
                       {"gap_cycles", gap.median()},
                       {"awaited", name_of(pattern.await)},
                       {"bursts", pattern.bursts},
                       {"repeats", issue.count()},
                       {"issue_cycles", issue.median()},
                       {"issue_cycles_low", issue.low()},
                       {"issue_cycles_high", issue.high()},
                       {"done_cycles", done.median()},
                       {"free_cycles", free.value},
                       {"stalled_share", probed.stalled_share()}});
  }
  return entries;
}

void print_neighbours(const NeighbourTarget& target, const NeighbourTable& table) {
  Table rows({"storing SMs", "pace", "store GB/s", "of drain", "loading SMs", "from", "load GB/s", "of alone"},
             "rrrrrlrr");
  for (const auto& cost : table.costs) {
    const auto& pattern = cost.pattern;
    rows.add({std::to_string(pattern.storers), cost.pace > 0 ? percent(cost.pace) : "none",
              fmt::format("{:.1f}", cost.store.median()), percent(cost.store_share), std::to_string(pattern.loaders),
              pattern.from_cache ? "cache" : "memory", fmt::format("{:.0f}", cost.load.median()),
              percent(cost.load_share)});
  }
  fmt::print("{}: {} to {}, drain {:.1f} GB/s\n{}", target.chip, target.path, target.dst, table.drain.value,
             rows.text());
  const auto unpaced = table.kept_at(0);
  const double pace = table.best_pace(kKeptLoads);
  if (unpaced.loads >= kKeptLoads) {
    fmt::print("=> Stores without a pause leave other SMs at least {} of their loads: no pacing needed.\n",
               percent(unpaced.loads));
  } else if (pace > 0) {
    const auto kept = table.kept_at(pace);
    fmt::print(
        "=> Stores without a pause leave other SMs {} of their loads; paced to {} of the drain they leave {} and keep "
        "{} of it.\n",
        percent(unpaced.loads), percent(pace), percent(kept.loads), percent(kept.stores));
  } else {
    fmt::print("=> Stores without a pause leave other SMs {} of their loads, and no pace measured leaves {}.\n",
               percent(unpaced.loads), percent(kKeptLoads));
  }
}

Json to_json(const NeighbourTable& table) {
  const double pace = table.best_pace(kKeptLoads);
  const auto unpaced = table.kept_at(0), kept = table.kept_at(pace);
  Json json = {{"drain_gbs", table.drain.value}, {"unpaced_load_share", unpaced.loads}, {"best_pace", pace},
               {"paced_load_share", kept.loads}, {"paced_store_share", kept.stores},    {"rows", Json::array()}};
  for (const auto& cost : table.costs) {
    json["rows"].push_back({{"storers", cost.pattern.storers},
                            {"pace", cost.pace},
                            {"loaders", cost.pattern.loaders},
                            {"from", cost.pattern.from_cache ? "cache" : "memory"},
                            {"repeats", cost.load.count()},
                            {"store_gbs", cost.store.median()},
                            {"store_share", cost.store_share},
                            {"load_gbs", cost.load.median()},
                            {"load_gbs_low", cost.load.low()},
                            {"load_gbs_high", cost.load.high()},
                            {"load_share", cost.load_share}});
  }
  return json;
}

}  // namespace xs::cli
