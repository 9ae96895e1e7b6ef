#pragma once

#include <functional>
#include <string>
#include <vector>

#include "xstage/model/samples.hpp"
#include "xstage/probe/repeats.hpp"

// Measures bursts and gaps on a port and yields the samples that a fit reads.

namespace xs {

// Means over the workers and bursts of one run.
struct BurstTimes {
  Cycles issue;
  Cycles done;  // from the end of the issue to the awaited completion
  Cycles gap;   // as it was: a thread that sleeps may sleep longer
};

// A port on some hardware, as far as a probe sees it.
struct ProbeTarget {
  std::string chip;
  std::string path;
  std::string dst;
  GigaHertz clock;  // of the cycles
  // Runs a pattern once, all workers starting together on an empty port.
  std::function<BurstTimes(const BurstPattern&)> run;
  int num_sms = 0;                          // of the chip; 0: it has none
  Bytes grain{1};                           // bursts are multiples of it
  std::vector<BurstPattern> patterns = {};  // to measure; none: those that probe_port() finds
  int bursts_in_a_row = 12;                 // of those with gaps
  // Which SM each of so many workers runs on; empty where there are no SMs.
  std::function<std::vector<int>(int workers)> placement = {};
};

struct ProbeOptions {
  std::vector<int> workers;  // counts to measure, each at least 1; of no use to a target with patterns of its own
  double precision = 0.02;   // of each pattern's median issue time, to either side
  int most_repeats = 9;      // of a pattern that does not settle
};

struct ProbedPattern {
  BurstPattern pattern;
  Repeats issue;  // cycles
  Repeats done;
  Repeats gap;
  Cycles free;  // issue time if every byte went as fast as those of the fastest burst of so many workers
  double stalled_share() const { return std::max(0.0, 1 - free.value / issue.median()); }
};

// Unless the target has patterns of its own, first looks for the size from which a burst into the empty port stalls,
// then measures bursts and gaps around it: bursts that await their completion, from an eighth to four times of what the
// port holds, and rows of bursts of a quarter of it (several workers: and of all of it) with gaps from none to more
// than they take to drain. Patterns take turns, so that whatever changes in the meantime meets all of them. Each is
// repeated until it has settled. `progress` gets what is done, 0 to 1.
std::vector<ProbedPattern> probe_port(const ProbeTarget& target, const ProbeOptions& options,
                                      const std::function<void(double)>& progress = {});

// Of the medians; gaps as they were.
std::vector<PatternSample> to_samples(const std::vector<ProbedPattern>& patterns);

// What read_samples() reads: one row per pattern, the mean over its bursts, the median over its repeats.
std::string samples_csv(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns);
// Its two parts, for several ports of one chip: samples_head() once, then the rows of each.
std::string samples_head(const std::string& chip, int num_sms, GigaHertz clock);
std::string samples_rows(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns);

}  // namespace xs
