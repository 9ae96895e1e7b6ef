#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/model/port.hpp"

// A machine as data: chip, clocks, ports, compute rates. Profiles are JSON files of kind "machine_profile"
// (profiles/*.json travel inside the program and go by their base name).

namespace xs {

struct ComputeRate {
  std::string dtype;     // of the products' inputs: "bf16", "fp8"
  FlopsPerCycle per_sm;  // dense, of a well-shaped tile
  std::string source;    // where the number comes from
};

// A fitted number and where the truth may lie: 95 %, from the scatter of the residuals.
struct FittedParameter {
  std::string name;  // as in the profile
  double value;
  double low;
  double high;
  bool identified;  // false: the samples would be told as well by a very different value
};

struct FittedPort {
  PortParams params;
  int num_patterns = 0;           // that the fit saw
  double mean_abs_rel_error = 0;  // of the mean issue time, on those
  bool saturated = false;         // false: the samples do not show a full port; drain is the throughput
                                  // seen and capacity the largest burst, both lower bounds without an interval
  std::vector<FittedParameter> parameters = {};
  std::optional<double> held_out_error = {};  // mean_abs_rel_error on patterns that a fit of the others has not seen
};

struct Machine {
  std::string name;
  std::string chip;
  std::string driver;
  std::string date;    // of the measurement
  std::string source;  // what was measured, or "datasheet estimate"
  int num_sms = 0;
  GigaHertz sm_clock;
  BytesPerNano memory;  // reads of device memory by all SMs
  std::string memory_source;
  // Group of SMs (GPC) of the i-th SM that a growing grid is placed on; empty: not known.
  std::vector<int> sm_groups;
  std::vector<FittedPort> ports;
  std::vector<ComputeRate> compute;

  // Bulk copies of another size than the measured one cost the same issue per copy, and as many of them wait in the
  // SM: "bulk4096" follows from "bulk8192". Throws and lists what there is.
  PortParams port(const std::string& path, const std::string& dst) const;
  bool is_estimate() const { return source.starts_with("datasheet estimate"); }
  FlopsPerCycle rate(const std::string& dtype) const;
};

// `name_or_file`: a file, or the base name of an embedded profile.
Machine load_machine(const std::string& name_or_file);
// The text of a profile; `name` says in errors where it came from.
Machine parse_machine(std::string_view text, const std::string& name);
Json to_json(const Machine& machine);
std::vector<std::string> embedded_machines();

}  // namespace xs
