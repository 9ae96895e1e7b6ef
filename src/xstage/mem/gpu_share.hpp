#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "xstage/mem/rank_sockets.hpp"

// GPU memory that processes of one user on one machine share. Without CUDA in the build making it throws
// Error(unavailable).

namespace xs {

// What carries the right to reach another process's memory.
enum class GpuShareBy {
  ipc,     // a cudaIpc handle
  file,    // an open file of the driver
  fabric,  // a handle that is good on every machine of an NVLink fabric; often not permitted
};
inline constexpr GpuShareBy kGpuShareBys[] = {GpuShareBy::ipc, GpuShareBy::file, GpuShareBy::fabric};
// "ipc", "file", "fabric".
std::string to_string(GpuShareBy by);

// A part of GPU memory per rank, and where each of them lies for this process.
//
// CUDA does not survive a fork: the process that starts the ranks must not have called it before.
//
// Ranks make and drop their shares in the same order. Whatever ends a process, SIGKILL included, gives its part back;
// what a peer still has open of it stays as long as that peer has.
class GpuShare {
 public:
  // Collective: `bytes` zeroed bytes on `device` of every rank; `bytes` and `by` must be equal on all. Returns when
  // every rank reaches every part. When it cannot be, every rank throws the same error, Error(unavailable) where it is
  // the machine that cannot, and all may try another way. `sockets` must outlive this.
  GpuShare(RankSockets& sockets, int device, GpuShareBy by, std::size_t bytes);
  GpuShare(const GpuShare&) = delete;
  GpuShare& operator=(const GpuShare&) = delete;
  // Collective: lets go of the peers' parts and waits until they have let go of the own one, or are gone, before that
  // is given back. Kernels of this process that use the memory are waited for.
  ~GpuShare();

  // By rank: where its part begins for this process and the kernels that it starts on `device`.
  const std::vector<std::byte*>& parts() const { return addresses_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::byte*> addresses_;
};

}  // namespace xs
