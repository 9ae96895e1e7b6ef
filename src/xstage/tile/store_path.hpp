#pragma once

#include <string>

namespace xs {

// How bytes of a kernel get into memory that may be a peer's. Plain data: kernels take it as a template argument.
enum class StorePath {
  st16,    // 16-byte stores of a thread each
  st4,     // 4-byte stores of a thread each
  bulk,    // one thread's bulk copies from shared memory
  tensor,  // one thread's tensor-map stores from shared memory
};

// "st16", "st4", "bulk", "tensor".
std::string to_string(StorePath path);
// Throws Error(usage) that lists them.
StorePath parse_store_path(const std::string& name);

}  // namespace xs
