#include "xstage/model/samples.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "xstage/core/csv.hpp"
#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

constexpr int kMostWorkers = 1 << 20;  // far above any machine; keeps what is read in an int
constexpr int kMostBursts = 1 << 20;
constexpr double kMostKiloHertz = 1e9;
constexpr double kMostCycles = 1e15;  // days; sums of them stay finite

void read_machine(const std::vector<std::string>& comments, Samples& samples) {
  if (comments.empty()) return;
  std::istringstream words(comments.front());
  bool in_name = true;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const auto value = equals == std::string::npos ? 0.0 : std::strtod(word.c_str() + equals + 1, nullptr);
    if (word.starts_with("sm=") && value >= 1 && value <= kMostWorkers) samples.num_sms = static_cast<int>(value);
    if (word.starts_with("clock_khz=") && value >= 1 && value <= kMostKiloHertz) samples.sm_clock = {value * 1e-6};
    // The name ends at the number of chips ("x2") or the first key.
    in_name = in_name && equals == std::string::npos &&
              !(word[0] == 'x' && word.size() > 1 && word[1] >= '0' && word[1] <= '9');
    if (in_name) samples.chip += (samples.chip.empty() ? "" : " ") + word;
  }
}

Completion completion_of(const Csv& csv, std::size_t row, std::size_t column) {
  switch (csv.integer(row, column, 0)) {
    case 0:
      return Completion::issued;
    case 2:
      return Completion::remote_visible;
    case 1:
    case 3:
      return Completion::source_free;
    default:
      fail(ErrorKind::usage, "{}: column \"completion\": expected 0, 1, 2 or 3, found {}", csv.where(row),
           csv.text(row, column));
  }
}

struct Sums {
  int rows = 0;
  int bursts = 0;  // in a row; a pattern that was measured twice has twice as many rows
  double issue = 0;
  double done = 0;
};

}  // namespace

Samples read_samples(const std::filesystem::path& file) { return parse_samples(read_text(file), file.string()); }

Samples parse_samples(std::string text, const std::string& name) {
  const auto csv = Csv::parse(std::move(text), name);
  const auto path = csv.column("path"), dst = csv.column("dst"), ctas = csv.column("ctas"),
             bytes = csv.column("bytes_per_cta"), gap = csv.column("gap_cycles"), issue = csv.column("issue_mean");
  const bool means = csv.has("bursts");
  const auto burst = csv.column(means ? "bursts" : "burst");
  Samples samples;
  read_machine(csv.comments(), samples);
  samples.num_rows = csv.num_rows();

  using Port = std::tuple<std::string, std::string, int>;
  using Pattern = std::tuple<std::int64_t, double, int, std::int64_t, std::string>;
  std::map<Port, std::map<Pattern, Sums>> ports;
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    const Port port{csv.text(row, path), csv.text(row, dst), static_cast<int>(csv.integer(row, ctas, 1, kMostWorkers))};
    const auto completion =
        csv.has("completion") ? completion_of(csv, row, csv.column("completion")) : Completion::issued;
    const Pattern pattern{csv.integer(row, bytes, 1), csv.number(row, gap, 0, kMostCycles),
                          static_cast<int>(completion),
                          csv.has("threads") ? csv.integer(row, csv.column("threads"), 1) : 0,
                          csv.has("set") ? std::string(csv.text(row, csv.column("set"))) : ""};
    Sums& sums = ports[port][pattern];
    ++sums.rows;
    const auto bursts = means ? csv.integer(row, burst, 1, kMostBursts) : 1 + csv.integer(row, burst, 0, kMostBursts);
    sums.bursts = std::max(sums.bursts, static_cast<int>(bursts));
    sums.issue += csv.number(row, issue, 0, kMostCycles);
    if (csv.has("done_mean")) sums.done += csv.number(row, csv.column("done_mean"), 0, kMostCycles);
  }
  for (const auto& [key, patterns] : ports) {
    const auto& [port_path, port_dst, workers] = key;
    PortSamples port{port_path, port_dst, workers, 0, {}};
    for (const auto& [pattern, sums] : patterns) {
      require(sums.issue > 0, "{}: path {}, dst {}, {} workers, {} bytes: every issue time is 0", name, port_path,
              port_dst, workers, std::get<0>(pattern));
      port.num_rows += static_cast<std::size_t>(sums.rows);
      port.patterns.push_back({{workers, Bytes{static_cast<double>(std::get<0>(pattern))}, Cycles{std::get<1>(pattern)},
                                sums.bursts, static_cast<Completion>(std::get<2>(pattern))},
                               Cycles{sums.issue / sums.rows},
                               Cycles{sums.done / sums.rows}});
    }
    samples.ports.push_back(std::move(port));
  }
  return samples;
}

}  // namespace xs
