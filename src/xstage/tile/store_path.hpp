#pragma once

#include <string>

#include "xstage/core/units.hpp"

namespace xs {

// How bytes of a kernel get into memory that may be a peer's. Plain data: kernels take it as a template argument.
enum class StorePath {
  st16,    // 16-byte stores of a thread each
  st4,     // 4-byte stores of a thread each
  bulk,    // one thread's bulk copies from shared memory
  tensor,  // one thread's tensor-map stores from shared memory
};

// Plain memory as a tensor map shows it: rows of so many bytes, one behind the other.
inline constexpr int kMapRowBytes = 256;

// One thread's copies, which read shared memory through the asynchronous proxy.
XS_HD constexpr bool is_asynchronous(StorePath path) { return path == StorePath::bulk || path == StorePath::tensor; }

// Where a store may begin and what its size is a multiple of, in bytes.
XS_HD constexpr int store_unit(StorePath path) {
  return path == StorePath::st4 ? 4 : path == StorePath::tensor ? kMapRowBytes : 16;
}

// "st16", "st4", "bulk", "tensor".
std::string to_string(StorePath path);
// Throws Error(usage) that lists them.
StorePath parse_store_path(const std::string& name);

}  // namespace xs
