#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "xstage/tile/store_path.hpp"

// Tensor maps for stores. For device code and for host code that calls CUDA.

namespace xs {

inline constexpr int kMostMapRows = 256;  // of one copy

// A map of `bytes` at `base` as rows of kMapRowBytes, which copies of `copy_bytes` are stored through. `base` aligned
// to 16 bytes, both sizes multiples of a row. Throws Error(unavailable) where the driver has no tensor maps.
CUtensorMap map_rows(std::byte* base, std::int64_t bytes, int copy_bytes);

}  // namespace xs
