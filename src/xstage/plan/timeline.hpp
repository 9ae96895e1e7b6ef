#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "xstage/plan/task.hpp"

// One record format for simulated, host and device runs, so that prediction and measurement can be laid over each
// other. Times are nanoseconds since the run's start.

namespace xs {

enum class SpanKind : std::uint8_t {
  compute,        // products and stores that did not stall
  operand_stall,  // the tile waits for its operands from device memory
  sender_stall,   // a store waits because the port's post-issue stage is full
  dependency,     // the task waits for data of other tasks or ranks
};
inline constexpr int kNumSpanKinds = 4;
inline constexpr std::string_view kSpanKindNames[kNumSpanKinds] = {"compute", "operand_stall", "sender_stall",
                                                                   "dependency_wait"};

struct Span {
  std::int32_t rank;
  std::int32_t worker;
  SpanKind kind;
  Task task;
  std::int64_t claim;
  Nanos begin;
  Nanos end;
};

// A port's outstanding bytes at one moment.
struct PortLevel {
  std::int32_t rank;
  Nanos at;
  Bytes outstanding;
};

struct Timeline {
  int num_ranks = 0;
  int workers_per_rank = 0;
  Nanos makespan{0};
  std::vector<Span> spans;        // of one worker: in order, without overlap
  std::vector<PortLevel> levels;  // in order of time; empty where nobody looked
  // [rank]; empty where nobody looked
  std::vector<Nanos> link_busy;    // time during which the rank's port drained
  std::vector<Nanos> link_hidden;  // the same, weighted with the part of the rank's workers that computed meanwhile
  // [rank] time of all its workers by kind; empty: the sum of the spans
  std::vector<std::array<Nanos, kNumSpanKinds>> totals = {};
};

// Shares of workers x makespan; with `tail` they sum to 1.
struct Breakdown {
  Nanos makespan{0};
  std::array<double, kNumSpanKinds> share{};
  double tail = 0;           // a worker has nothing left to do while others run
  double link_busy = 0;      // of the makespan, mean over ranks; not part of the sum
  double overlap_ratio = 0;  // while links drained, this part of the workers computed; 1: hidden, 0: exposed
};

Breakdown breakdown(const Timeline& timeline);
// Of each rank alone, over the same makespan.
std::vector<Breakdown> breakdown_by_rank(const Timeline& timeline);

}  // namespace xs
