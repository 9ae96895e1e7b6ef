#pragma once

#include <cstdint>

#include "xstage/core/units.hpp"

// A flag's word, on host and device alike: the epoch in the upper, the count in the lower 32 bits.

namespace xs {

using Word = std::uint64_t;

XS_HD constexpr Word armed(std::uint32_t epoch) { return Word{epoch} << 32; }

// How far `word` is past `target`; negative: not reached. Signed, so that a wrap of the epoch does not matter.
XS_HD constexpr std::int64_t ahead(Word word, Word target) { return static_cast<std::int64_t>(word - target); }

// Where the counter of a flag lies among the two banks of `num_flags`.
XS_HD constexpr std::size_t counter_index(int num_flags, int flag, std::uint32_t epoch) {
  return (epoch % 2) * static_cast<std::size_t>(num_flags) + static_cast<std::size_t>(flag);
}

}  // namespace xs
