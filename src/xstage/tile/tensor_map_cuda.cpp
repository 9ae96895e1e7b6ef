#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_driver.hpp"
#include "xstage/tile/tensor_map.hpp"

namespace xs {
CUtensorMap map_rows(std::byte* base, std::int64_t bytes, int copy_bytes) {
  require(bytes > 0 && bytes % kMapRowBytes == 0 && copy_bytes > 0 && copy_bytes % kMapRowBytes == 0 &&
              copy_bytes / kMapRowBytes <= kMostMapRows,
          "a tensor map of {} bytes for copies of {}: expected rows of {} bytes, and at most {} of them in a copy",
          bytes, copy_bytes, kMapRowBytes, kMostMapRows);
  CUtensorMap map{};
  const cuuint64_t sizes[] = {kMapRowBytes, static_cast<cuuint64_t>(bytes / kMapRowBytes)}, strides[] = {kMapRowBytes};
  const cuuint32_t box[] = {kMapRowBytes, static_cast<cuuint32_t>(copy_bytes / kMapRowBytes)}, steps[] = {1, 1};
  const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const auto result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, base, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "a tensor map of {} bytes at {}: the driver answers {}", bytes, fmt::ptr(base),
        static_cast<int>(result));
  return map;
}

CUtensorMap map_matrix(const std::byte* base, std::int64_t rows, std::int64_t columns, int box_rows) {
  require(rows > 0 && columns > 0 && columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(base) % 16 == 0,
          "a tensor map of {} rows and {} columns of bf16 at {}: expected rows, columns in multiples of 8 and a base "
          "aligned to 16 bytes",
          rows, columns, fmt::ptr(base));
  constexpr cuuint32_t kBoxColumns = 64;  // 128 bytes, the swizzle's width
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const auto result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::byte*>(base), sizes, strides,
                             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "a tensor map of {} x {} bf16 at {}: the driver answers {}", rows, columns,
        fmt::ptr(base), static_cast<int>(result));
  return map;
}

}  // namespace xs
