#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "xstage/core/units.hpp"

// Faults to provoke on purpose, in tests of whatever runs on ranks. What reorders completions is the port
// (mem/host_port.hpp).

namespace xs {

// A step is a wait, a raise, a closing barrier, or what an operator calls one; they are counted per rank.
struct Faults {
  struct At {
    int rank = -1;  // none
    std::int64_t count = 0;
  };
  std::uint64_t seed = 0;
  Nanos max_delay{0};            // before every step: up to this, by a hash of seed, rank and step
  std::vector<Nanos> late = {};  // by rank: before its first step; ranks beyond are not late
  At drop_raise = {};            // the rank's raise of this count never happens
  At kill = {};                  // SIGKILL before this step; for ranks that are processes
};

// One rank's. Its threads share it.
class FaultInjector {
 public:
  FaultInjector(Faults faults, int rank) : faults_(std::move(faults)), rank_(rank) {}
  void step();
  bool drops_raise();

 private:
  Faults faults_;
  int rank_;
  std::atomic<std::int64_t> steps_{0}, raises_{0};
};

}  // namespace xs
