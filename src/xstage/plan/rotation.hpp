#pragma once

#include <cstdint>
#include <string_view>

#include "xstage/core/units.hpp"

namespace xs {

// Where a rank begins among row blocks whose rows stand by owner, rank 0's first. The visit wraps around, so rank r
// meets the rows of r, r + 1, … in turn, and no two ranks are at the same owner's rows at once.
enum class Rotation : std::uint8_t {
  natural,    // with block 0, on every rank
  own_last,   // behind the own rows: what goes to peers leaves first, and the end of the run sends nothing
  own_first,  // with the own rows: they need no peer, and what comes from peers has time to arrive
};
inline constexpr std::string_view kRotationNames[] = {"natural", "own-last", "own-first"};

// The block at which each rotation begins.
struct RotationStarts {
  std::int32_t own_last = 0;
  std::int32_t own_first = 0;

  friend constexpr bool operator==(const RotationStarts&, const RotationStarts&) = default;
};

// Rows [begin, end) of num_rows are own. A block that they share with a peer's rows is the peer's: own_last begins with
// the block in which the next owner's rows begin, own_first ends with the one in which the previous owner's end.
XS_HD constexpr RotationStarts rotation_starts(std::int64_t begin, std::int64_t end, std::int64_t num_rows,
                                               std::int32_t block_rows) {
  const auto first_own = static_cast<std::int32_t>((begin + block_rows - 1) / block_rows);
  return {end < num_rows ? static_cast<std::int32_t>(end / block_rows) : 0,
          std::int64_t{first_own} * block_rows < num_rows ? first_own : 0};
}

// The block at a position of the visit, both in [0, num_blocks).
XS_HD constexpr std::int32_t rotated(Rotation rotation, const RotationStarts& starts, std::int32_t position,
                                     std::int32_t num_blocks) {
  if (rotation == Rotation::natural) return position;
  const std::int32_t start = rotation == Rotation::own_last ? starts.own_last : starts.own_first;
  const std::int32_t until_wrap = num_blocks - start;
  return position < until_wrap ? start + position : position - until_wrap;
}

}  // namespace xs
