#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/core/units.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/rows_to.hpp"

// What was measured of a layer, case by case, and the file that keeps it.

namespace xs::bench {

struct TimedRun {
  Order order;
  Claim claim;
  RowsTo rows_to;
  Nanos predicted;  // 0: nobody did
  Nanos median, least, most;
  int repeats;
};

// Where the time of the rank's workers went, as shares of all of it; they sum to 1.
struct RunShares {
  std::string what;  // "choice", "baseline", "choice, rows to own memory"
  double products, operand_stall, sender_stall, sums, rest;
};

struct MoeRecord {
  std::string model;
  std::int64_t tokens_per_rank;
  int workers;
  double rho;
  bool gain_expected;
  double bytes_to_peers;
  double drain;                 // GB/s, by the profile
  std::vector<TimedRun> runs;   // rows to their owners, in every order of the planner, its choice first
  std::size_t baseline;         // of those: expert waves by their heuristic, counter claims
  std::vector<TimedRun> local;  // control: rows to own memory
  std::vector<TimedRun> bare;   // control: no rows of Linear-2 tiles
  std::vector<RunShares> shares;

  const TimedRun& choice() const { return runs.front(); }
  const TimedRun& best() const;
  Nanos local_time() const;  // the least of the control
  Nanos link_time() const { return {bytes_to_peers / drain}; }
  Nanos bound() const { return max(local_time(), link_time()); }  // no order is faster
  double gain() const { return runs[baseline].median / choice().median; }
  double over_best() const { return choice().median / best().median; }
  double over_bound() const { return choice().median / bound(); }
  double error() const { return choice().predicted / choice().median - 1; }
};

// What all records of a file have in common.
struct MoeSettings {
  std::string backend;  // "sim", "cuda"
  std::string receive;  // where the peers' memory lies: "own", "host"
  std::string machine;  // the profile of predictions and bounds
  std::string chip, driver;
  std::string commit;
  int workers;  // 0: by the rule of workers_of()
  double pace;  // part of the port that senders keep within; 0: they do not
  std::uint64_t seed;
  friend bool operator==(const MoeSettings&, const MoeSettings&) = default;
};

struct MoeFile {
  MoeSettings settings;
  std::vector<MoeRecord> records;
};
Json to_json(const MoeFile& file);
void write_moe_file(const std::filesystem::path& file, const MoeFile& content);
MoeFile read_moe_file(const std::filesystem::path& file);
// `name` says in errors where the text came from.
MoeFile parse_moe_file(std::string_view text, const std::string& name);
// Throws Error(usage) where the settings differ, or two have the same case.
MoeFile merge(std::span<const MoeFile> files);

}  // namespace xs::bench
