#pragma once

#include <cstddef>
#include <cstdint>

#include "xstage/core/units.hpp"

// The words of flags and their arithmetic, the same for ranks of the CPU and of a GPU.

namespace xs {

// Epoch in the upper, count in the lower 32 bits.
using Word = std::uint64_t;

// What a counter holds before anything is raised in this epoch.
XS_HD constexpr Word armed(std::uint32_t epoch) { return Word{epoch} << 32; }

// How far `word` is past `target`; negative: not reached. Signed, so that a wrap of the epoch does not matter.
XS_HD constexpr std::int64_t ahead(Word word, Word target) { return static_cast<std::int64_t>(word - target); }

// Where words stand behind the head of a rank's signals region:
// two banks of counters | arrivals at barriers, one per source rank | meetings of resets, one per source rank.
struct FlagWords {
  int num_flags;
  int num_ranks;
  XS_HD constexpr std::size_t counter(int flag, std::uint32_t epoch) const {
    return (epoch % 2) * static_cast<std::size_t>(num_flags) + static_cast<std::size_t>(flag);
  }
  XS_HD constexpr std::size_t arrival(int source) const {
    return 2 * static_cast<std::size_t>(num_flags) + static_cast<std::size_t>(source);
  }
  XS_HD constexpr std::size_t resetting(int source) const {
    return arrival(0) + static_cast<std::size_t>(num_ranks) + static_cast<std::size_t>(source);
  }
  XS_HD constexpr std::size_t size() const { return resetting(0) + static_cast<std::size_t>(num_ranks); }
};

}  // namespace xs
