#include "xstage/bench/moe_record.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "xstage/core/json.hpp"

namespace xs::bench {
namespace {

constexpr const char* kKind = "moe_bench";

Nanos time_field(const Json& json, const char* key, const std::string& where) {
  return {positive_field(json, key, where)};
}

Json run_to_json(const TimedRun& run) {
  Json json{{"schedule", to_string(run.order)}, {"claim", to_string(run.claim)}, {"ns", run.median.value},
            {"ns_least", run.least.value},      {"ns_most", run.most.value},     {"repeats", run.repeats}};
  if (run.predicted > Nanos{0}) json["predicted_ns"] = run.predicted.value;
  return json;
}

TimedRun run_from_json(const Json& json, const std::string& where) {
  TimedRun run{};
  try {
    run.order = parse_order(field<std::string>(json, "schedule", where), {});
    run.claim = parse_claim(field<std::string>(json, "claim", where));
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
  if (json.contains("predicted_ns")) run.predicted = time_field(json, "predicted_ns", where);
  run.median = time_field(json, "ns", where);
  run.least = time_field(json, "ns_least", where);
  run.most = time_field(json, "ns_most", where);
  run.repeats = field_at_least(1, json, "repeats", where);
  return run;
}

Json runs_to_json(const std::vector<TimedRun>& runs) {
  Json json = Json::array();
  for (const auto& run : runs) json.push_back(run_to_json(run));
  return json;
}

std::vector<TimedRun> runs_from_json(const Json& json, const char* key, const std::string& where) {
  std::vector<TimedRun> runs;
  for (const auto& run : field<std::vector<Json>>(json, key, where)) {
    runs.push_back(run_from_json(run, fmt::format("{}: {}[{}]", where, key, runs.size())));
  }
  require(!runs.empty(), "{}: {} has no runs", where, key);
  return runs;
}

Json record_to_json(const MoeRecord& record) {
  Json shares = Json::array();
  for (const auto& one : record.shares) {
    shares.push_back({{"of", one.what},
                      {"products", one.products},
                      {"operand_stall", one.operand_stall},
                      {"sender_stall", one.sender_stall},
                      {"sums", one.sums},
                      {"rest", one.rest}});
  }
  return {{"model", record.model},
          {"tokens_per_rank", record.tokens_per_rank},
          {"workers", record.workers},
          {"rho", record.rho},
          {"gain_expected", record.gain_expected},
          {"bytes_to_peers", record.bytes_to_peers},
          {"drain_gbs", record.drain},
          {"baseline", record.baseline},
          {"runs", runs_to_json(record.runs)},
          {"rows_to_own_memory", runs_to_json(record.local)},
          {"rows_nowhere", runs_to_json(record.bare)},
          {"shares", shares},
          {"gain", record.gain()},
          {"over_best", record.over_best()},
          {"over_bound", record.over_bound()}};
}

MoeRecord record_from_json(const Json& json, const std::string& where) {
  MoeRecord record{};
  record.model = field<std::string>(json, "model", where);
  record.tokens_per_rank = field_at_least(std::int64_t{1}, json, "tokens_per_rank", where);
  record.workers = field_at_least(1, json, "workers", where);
  record.rho = field_at_least(0.0, json, "rho", where);
  record.gain_expected = field<bool>(json, "gain_expected", where);
  record.bytes_to_peers = field_at_least(0.0, json, "bytes_to_peers", where);
  record.drain = positive_field(json, "drain_gbs", where);
  record.runs = runs_from_json(json, "runs", where);
  record.baseline = field<std::size_t>(json, "baseline", where);
  require(record.baseline < record.runs.size(), "{}: the baseline is run {} of {}", where, record.baseline,
          record.runs.size());
  record.local = runs_from_json(json, "rows_to_own_memory", where);
  record.bare = runs_from_json(json, "rows_nowhere", where);
  for (auto& run : record.local) run.rows_to = RowsTo::own;
  for (auto& run : record.bare) run.rows_to = RowsTo::nowhere;
  for (const auto& one : field<std::vector<Json>>(json, "shares", where)) {
    const auto share = [&](const char* key) { return field<double>(one, key, where + ": shares"); };
    record.shares.push_back({field<std::string>(one, "of", where + ": shares"), share("products"),
                             share("operand_stall"), share("sender_stall"), share("sums"), share("rest")});
  }
  return record;
}

}  // namespace

const TimedRun& MoeRecord::best() const { return *std::ranges::min_element(runs, {}, &TimedRun::median); }

Nanos MoeRecord::local_time() const { return std::ranges::min_element(local, {}, &TimedRun::median)->median; }

Json to_json(const MoeFile& file) {
  Json json = new_document(kKind);
  const auto& settings = file.settings;
  json["settings"] = {{"backend", settings.backend}, {"receive", settings.receive}, {"machine", settings.machine},
                      {"chip", settings.chip},       {"driver", settings.driver},   {"commit", settings.commit},
                      {"workers", settings.workers}, {"pace", settings.pace},       {"seed", settings.seed}};
  json["cases"] = Json::array();
  for (const auto& record : file.records) json["cases"].push_back(record_to_json(record));
  return json;
}

void write_moe_file(const std::filesystem::path& file, const MoeFile& content) {
  write_document(file, to_json(content));
}

MoeFile parse_moe_file(std::string_view text, const std::string& name) {
  const auto json = parse_document(text, kKind, name);
  const auto settings = field<Json>(json, "settings", name);
  const auto where = name + ": settings";
  const auto word = [&](const char* key) { return field<std::string>(settings, key, where); };
  MoeFile file{{word("backend"), word("receive"), word("machine"), word("chip"), word("driver"), word("commit"),
                field_at_least(0, settings, "workers", where), field_at_least(0.0, settings, "pace", where),
                field<std::uint64_t>(settings, "seed", where)},
               {}};
  for (const auto& record : field<std::vector<Json>>(json, "cases", name)) {
    file.records.push_back(record_from_json(record, fmt::format("{}: cases[{}]", name, file.records.size())));
  }
  return file;
}

MoeFile read_moe_file(const std::filesystem::path& file) { return parse_moe_file(read_text(file), file.string()); }

MoeFile merge(std::span<const MoeFile> files) {
  require(!files.empty(), "no files to merge");
  MoeFile all{files.front().settings, {}};
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (const auto& file : files) {
    require(file.settings == all.settings, "the files are of different settings: {} and {}",
            to_json(MoeFile{all.settings, {}})["settings"].dump(),
            to_json(MoeFile{file.settings, {}})["settings"].dump());
    for (const auto& record : file.records) {
      require(seen.emplace(record.model, record.tokens_per_rank).second, "{} with {} tokens a rank stands in two files",
              record.model, record.tokens_per_rank);
      all.records.push_back(record);
    }
  }
  return all;
}

}  // namespace xs::bench
