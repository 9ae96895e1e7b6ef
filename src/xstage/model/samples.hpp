#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "xstage/model/port.hpp"

// Burst samples of a probe, reduced to patterns.

namespace xs {

// One measured pattern: the mean over its bursts and workers.
struct PatternSample {
  BurstPattern pattern;
  Cycles mean_issue;
  Cycles mean_done;  // from the end of the issue to the awaited completion
};

struct PortSamples {
  std::string path;
  std::string dst;
  int workers = 0;
  std::size_t num_rows = 0;  // of the file
  std::vector<PatternSample> patterns;
};

struct Samples {
  std::string chip;  // of the leading comment "# <chip> … sm=132 clock_khz=1980000"; empty without one
  int num_sms = 0;
  GigaHertz sm_clock{0};
  std::size_t num_rows = 0;
  std::vector<PortSamples> ports;  // sorted by path, dst, workers
};

// Columns read: path, dst, ctas, bytes_per_cta, gap_cycles, burst (from 0, in a row), issue_mean; optional: threads,
// completion (0 issued, 1 and 3 source free, 2 remote visible), done_mean, set. With a column bursts instead of burst,
// a row is the mean over so many bursts. Rows of one pattern may stand anywhere.
Samples read_samples(const std::filesystem::path& file);
// `name` says in errors where the text came from.
Samples parse_samples(std::string text, const std::string& name);

}  // namespace xs
