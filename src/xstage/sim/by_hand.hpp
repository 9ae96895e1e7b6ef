#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "xstage/plan/check.hpp"
#include "xstage/plan/loose_schedule.hpp"
#include "xstage/sim/simulate.hpp"

// For tests of sim: schedules written by hand on a machine with round numbers.

namespace xs {

// At 2 GHz a worker computes 8 flop/ns and stores 20 B/ns, 3 ns after it began; the link drains 2 B/ns and holds 600 B,
// and what drained is visible 7 ns later.
inline SimMachine machine_by_hand() {
  PortParams port;
  port.burst_overhead = {6};
  port.free_issue = {10};
  port.drain = {2};
  port.capacity = {600};
  port.visible_latency = {7};
  return {{2}, {4}, {std::numeric_limits<double>::infinity()}, port};
}

inline LooseTask computes(double nanos) { return {.work = {8 * nanos, 0}}; }

// Sends raise one more flag, which nobody waits for. Of what kind a task is matters once the schedule is checked.
inline Timeline simulate_by_hand(std::vector<std::vector<LooseTask>> ranks, std::int32_t num_flags,
                                 const SimMachine& machine, const SimOptions& options) {
  for (auto& tasks : ranks) {
    for (auto& task : tasks) {
      for (const auto& send : task.sends) task.raises.push_back({send.rank, num_flags, 1});
    }
  }
  auto schedule = put_together(by_hand(ranks, num_flags + 1));
  require_valid(schedule, "by hand");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < ranks[rank].size(); ++i) schedule.ranks[rank].tasks[i].kind = ranks[rank][i].task.kind;
  }
  return simulate(schedule, machine, options);
}

inline std::vector<Span> spans_of(const Timeline& timeline, int rank, std::int64_t claim) {
  auto spans = timeline.spans;
  std::erase_if(spans, [&](const Span& span) { return span.rank != rank || span.claim != claim; });
  return spans;
}

inline void expect_span(const Span& span, SpanKind kind, double begin, double end) {
  EXPECT_EQ(span.kind, kind);
  EXPECT_NEAR(span.begin.value, begin, 1e-12 * std::max(1.0, begin));  // a port adds up many short times
  EXPECT_NEAR(span.end.value, end, 1e-12 * std::max(1.0, end));
}

}  // namespace xs
