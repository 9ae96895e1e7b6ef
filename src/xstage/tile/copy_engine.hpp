#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "xstage/signal/flag_words.hpp"

// Copies that no SM works on: a port that the host feeds. For host code that calls CUDA.

namespace xs {

struct Copy {
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
};

// Copies in the order of a stream. On return of every call: issued. Source free and remote visible for what comes later
// in the stream, and for the host after finish().
class CopyQueue {
 public:
  // `stream`, of the current device, must outlive this. `timeout`: of finish().
  explicit CopyQueue(cudaStream_t stream, Nanos timeout = {30e9}) : stream_(stream), timeout_(timeout) {}

  void copy(const Copy& one);
  // One call for all, in no order among themselves. Unlike copy(), never done by SMs when source and target lie on one
  // GPU. They must not overlap.
  void copy_batch(std::span<const Copy> copies);

  // What is queued from now on waits until `flag`, which the GPU reaches, has come to `target` or past it (ahead()).
  // acquires: what the raises that make up `target` published. `name` is for the report.
  // Code of a kernel that raises it must be loaded before (CUDA_MODULE_LOADING=EAGER): loading waits for all streams.
  void wait_for(Word* flag, Word target, std::string name);

  // Until all is done. Throws Error(timeout) with the flag that did not come, after it has let the stream go on as if
  // it had: what the copies behind it brought is worth nothing.
  void finish();

 private:
  struct Wait {
    Word* flag;
    Word target;
    std::string name;
  };
  bool is_done() const;
  cudaStream_t stream_;
  Nanos timeout_;
  std::vector<Wait> waits_;  // since the last finish()
};

}  // namespace xs
