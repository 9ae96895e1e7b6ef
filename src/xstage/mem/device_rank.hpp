#pragma once

#include <cstddef>
#include <cstdint>

#include "xstage/core/units.hpp"

// What a kernel knows of its rank. Plain data, made by GpuWorld.

namespace xs {

struct DeviceRank {
  int rank;
  int num_ranks;
  std::byte* const* parts;  // on the device: of every rank, where its symmetric part begins as this rank reaches it

  // What lies `offset` bytes into the part of `peer`; Layout::offset() says where a region begins.
  template <class T>
  XS_HD T* at(int peer, std::uint64_t offset) const {
    return reinterpret_cast<T*>(parts[peer] + offset);
  }
};

// Virtual ranks are partitions of one grid: part i has the i-th of equally many blocks each. A grid that serves one
// rank is one part.
struct GridPart {
  int part;
  int block;  // within the part
  int num_blocks;
};

XS_HD constexpr GridPart part_of(int block, int num_blocks, int num_parts) {
  const int each = num_blocks / num_parts;
  return {block / each, block % each, each};
}

}  // namespace xs
