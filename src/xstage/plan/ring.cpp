#include "xstage/plan/ring.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace xs {

std::int32_t ring_bound(std::span<const RingUse> uses) {
  // begins[u]: the first task of use u or any later one.
  std::vector<std::int64_t> begins(uses.size());
  auto soonest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t use = uses.size(); use-- > 0;) begins[use] = soonest = std::min(soonest, uses[use].first);
  std::ptrdiff_t bound = 0;
  for (std::size_t use = 0; use < uses.size(); ++use) {
    // Uses that begin while this one lasts need slots of their own.
    const auto self = begins.begin() + static_cast<std::ptrdiff_t>(use);
    bound = std::max(bound, std::upper_bound(self + 1, begins.end(), uses[use].last) - self);
  }
  return static_cast<std::int32_t>(bound);
}

}  // namespace xs
