#include "xstage/mem/residency.hpp"

#include "xstage/core/error.hpp"

namespace xs {

void require_resident(const Residency& grid) {
  const auto most = static_cast<std::int64_t>(grid.num_sms) * grid.blocks_per_sm;
  require(
      grid.num_blocks >= 1 && grid.num_blocks <= most,
      "{}: {} blocks of {} threads and {} bytes of shared memory must be resident at once; {} SMs hold {} ({} each); "
      "use fewer blocks per rank, fewer ranks or smaller blocks",
      grid.kernel, grid.num_blocks, grid.threads, grid.shared_bytes, grid.num_sms, most, grid.blocks_per_sm);
}

}  // namespace xs
