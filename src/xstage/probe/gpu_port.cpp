#include <algorithm>
#include <bit>

#include "xstage/core/error.hpp"
#include "xstage/probe/gpu_target.hpp"
#include "xstage/tile/store_path.hpp"

namespace xs {

void require_port(const GpuPort& port) {
  require(port.to == "host" || port.to == "hbm" || port.to == "peer", "--to {}: expected host, hbm or peer",
          excerpt(port.to));
  try {
    if (!is_copy_engine(port)) parse_store_path(port.path);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}; or ce, ce_batch or ce_wait, of the copy engine", error.what());
  }
  require(port.copy_bytes >= kMapRowBytes && port.copy_bytes <= 32768 &&
              std::has_single_bit(static_cast<unsigned>(port.copy_bytes)),
          "--copy-bytes {}: expected a power of two from {} to 32768", port.copy_bytes, kMapRowBytes);
}

bool is_copy_engine(const GpuPort& port) {
  return port.path == "ce" || port.path == "ce_batch" || port.path == "ce_wait";
}

std::vector<int> worker_counts(int num_sms) {
  std::vector<int> counts;
  for (const int count : {1, 4, 8, num_sms / 8, num_sms / 4, num_sms / 2, num_sms}) {
    if (count >= 1 && count <= num_sms) counts.push_back(count);
  }
  std::ranges::sort(counts);
  const auto twice = std::ranges::unique(counts);
  counts.erase(twice.begin(), twice.end());
  return counts;
}

}  // namespace xs
