#pragma once

#include <cstdint>
#include <span>

// A ring of buffer slots: use u takes slot u % slots, as soon as the use before it in that slot is over.

namespace xs {

// Claim indices of the first and the last task of one rank that touch the slot in this use.
struct RingUse {
  std::int64_t first;
  std::int64_t last;
};

// The smallest number of slots with which every use begins behind the last task of the use before it in its slot, so
// that waits for a free slot point back. Any larger number does as well.
std::int32_t ring_bound(std::span<const RingUse> uses);

}  // namespace xs
