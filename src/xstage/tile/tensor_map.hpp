#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "xstage/tile/store_path.hpp"

// Tensor maps. For device code and for host code that calls CUDA.

namespace xs {

inline constexpr int kMostMapRows = 256;  // of one copy

// A map of `bytes` at `base` as rows of kMapRowBytes, which copies of `copy_bytes` are stored through. `base` aligned
// to 16 bytes, both sizes multiples of a row. Throws Error(unavailable) where the driver has no tensor maps.
CUtensorMap map_rows(std::byte* base, std::int64_t bytes, int copy_bytes);

// A row-major bf16 matrix as load_box() reads it: boxes of 64 columns by `box_rows` rows, at most 256, in the 128-byte
// swizzle. `base` aligned to 16 bytes, columns a multiple of 8. Throws as map_rows() does.
CUtensorMap map_matrix(const std::byte* base, std::int64_t rows, std::int64_t columns, int box_rows);

}  // namespace xs
