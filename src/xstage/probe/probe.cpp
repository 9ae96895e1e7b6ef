#include "xstage/probe/probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr Bytes kUnfilled{131072};  // a worker's part of a port that its workers never fill, to choose patterns by

// About what a port holds and drains: enough to choose patterns.
struct Scale {
  Bytes capacity;
  Nanos drain_time;  // of so much
};

Bytes whole_grains(const ProbeTarget& target, double bytes) {
  return target.grain * std::ceil(bytes / target.grain.value);
}

// Of a burst of so many bytes per worker into the empty port.
BurstTimes times_of(const ProbeTarget& target, int workers, double bytes) {
  return target.run({workers, whole_grains(target, bytes), Cycles{0}, 1, Completion::remote_visible});
}

// It issues as long as the port drains for the most part.
bool stalls(const BurstTimes& of) { return of.issue > (of.issue + of.done) * 0.6; }

// Doubles a burst into the empty port until twice in a row it stalls: once may be a thread that was held up.
Scale search_scale(const ProbeTarget& target, int workers) {
  constexpr double kLeast = 65536, kMost = 1 << 30;  // of one worker's burst
  auto before = times_of(target, workers, kLeast / 2), times = before;
  const double first_rate = kLeast / 2 / before.issue.value;
  double bytes = kLeast;
  for (;; bytes *= 2, before = times) {
    times = times_of(target, workers, bytes);
    if ((stalls(before) && stalls(times)) || bytes == kMost) break;
  }
  // The second half shows the drain without the latency, and the drain shows how much the rest of the burst found.
  const Bytes all = Bytes{bytes} * workers;
  const Nanos half_time = (times.issue + times.done - before.issue - before.done) / target.clock;
  const BytesPerNano drain = all * 0.5 / max(half_time, Nanos{1});
  // Workers so few that they never fill the port issue the second half about as fast as the first bytes.
  const double half_rate = bytes / 2 / max(times.issue - before.issue, Cycles{1}).value;
  if (half_rate > 0.6 * first_rate) return {kUnfilled * workers, kUnfilled * workers / drain};
  const Bytes left = max(all - drain * (times.issue / target.clock), all * 0.02);
  return {left, left / drain};
}

// The middle of three, searched again if bursts of half and of four times of it deny it: what disturbs a search makes
// it find far too little or too much.
Scale find_scale(const ProbeTarget& target, int workers) {
  constexpr int kTries = 4;
  std::array<Scale, 3> found;
  for (int i = 0; i < kTries; ++i) {
    for (auto& scale : found) scale = search_scale(target, workers);
    std::ranges::sort(found, {}, [](const Scale& scale) { return scale.capacity.value; });
    const auto with = [&](double parts) {
      return times_of(target, workers, found[1].capacity.value * parts / workers);
    };
    if (!stalls(with(0.5)) && stalls(with(4))) break;
  }
  return found[1];
}

// Bursts and gaps around the size from which stalls begin.
std::vector<BurstPattern> choose_patterns(const ProbeTarget& target, const Scale& scale, int workers) {
  std::vector<BurstPattern> patterns;
  const auto burst = [&](double parts) { return whole_grains(target, scale.capacity.value * parts / workers); };
  // None just past the onset, where a little more time is a large part of the stall. The largest one is the longest
  // pattern of all: it shows the drain.
  for (const double parts : {0.125, 0.25, 0.5, 0.75, 1.5, 2.0, 2.5, 3.0, 4.0}) {
    patterns.push_back({workers, burst(parts), Cycles{0}, 1, Completion::remote_visible});
  }
  // Several workers that fill the port fall out of step: bursts as large as it show how unequally they are served.
  const auto sizes = workers == 1 ? std::vector{0.25} : std::vector{0.25, 1.0};
  for (const double parts : sizes) {
    for (const double gap : {0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5}) {  // in times that a burst takes to drain
      const double cycles = std::round((scale.drain_time * (parts * gap) * target.clock).value);
      patterns.push_back({workers, burst(parts), Cycles{cycles}, target.bursts_in_a_row, Completion::issued});
    }
  }
  return patterns;
}

}  // namespace

std::vector<ProbedPattern> probe_port(const ProbeTarget& target, const ProbeOptions& options,
                                      const std::function<void(double)>& progress) {
  std::vector<ProbedPattern> patterns;
  for (const auto& pattern : target.patterns) patterns.push_back({pattern, {}, {}, {}, {}});
  if (patterns.empty()) {
    require(!options.workers.empty() && std::ranges::min(options.workers) >= 1,
            "a probe needs worker counts of at least 1");
    for (const int workers : options.workers) {
      for (const auto& pattern : choose_patterns(target, find_scale(target, workers), workers)) {
        patterns.push_back({pattern, {}, {}, {}, {}});
      }
    }
  }
  for (int round = 0; round < options.most_repeats; ++round) {
    int measured = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      auto& probed = patterns[i];
      if (probed.issue.settled(options.precision)) continue;
      const auto times = target.run(probed.pattern);
      probed.issue.add(times.issue.value);
      probed.done.add(times.done.value);
      probed.gap.add(times.gap.value);
      ++measured;
      if (progress) {
        const double of_round = static_cast<double>(i + 1) / static_cast<double>(patterns.size());
        progress((round + of_round) / options.most_repeats);
      }
    }
    if (measured == 0) break;
  }
  std::map<int, double> cycles_per_byte;
  for (const auto& probed : patterns) {
    auto& least = cycles_per_byte.try_emplace(probed.pattern.workers, kNone).first->second;
    least = std::min(least, probed.issue.median() / probed.pattern.bytes.value);
  }
  for (auto& probed : patterns) probed.free = {cycles_per_byte[probed.pattern.workers] * probed.pattern.bytes.value};
  return patterns;
}

std::vector<PatternSample> to_samples(const std::vector<ProbedPattern>& patterns) {
  std::vector<PatternSample> samples;
  for (const auto& probed : patterns) {
    auto pattern = probed.pattern;
    pattern.gap = Cycles{probed.gap.median()};
    samples.push_back({pattern, Cycles{probed.issue.median()}, Cycles{probed.done.median()}});
  }
  return samples;
}

std::string samples_head(const std::string& chip, int num_sms, GigaHertz clock) {
  return fmt::format(
      "# {} sm={} clock_khz={:.0f}\n"
      "path,dst,ctas,bytes_per_cta,gap_cycles,completion,bursts,repeats,issue_mean,issue_low,issue_high,done_mean\n",
      chip, num_sms, clock.value * 1e6);
}

std::string samples_rows(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns) {
  std::string text;
  for (const auto& [pattern, issue, done, gap, free] : patterns) {
    text += fmt::format("{},{},{},{:.0f},{:.0f},{},{},{},{:.1f},{:.1f},{:.1f},{:.1f}\n", target.path, target.dst,
                        pattern.workers, pattern.bytes.value, gap.median(), static_cast<int>(pattern.await),
                        pattern.bursts, issue.count(), issue.median(), issue.low(), issue.high(), done.median());
  }
  return text;
}

std::string samples_csv(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns) {
  int num_sms = target.num_sms;
  for (const auto& probed : patterns) num_sms = std::max(num_sms, probed.pattern.workers);
  return samples_head(target.chip, num_sms, target.clock) + samples_rows(target, patterns);
}

}  // namespace xs
