#pragma once

#include "xstage/mem/layout.hpp"
#include "xstage/op/host_tensor.hpp"
#include "xstage/plan/moe_capacity.hpp"

namespace xs::moe {

// A rank's memory for one layer at a time: regions of the world's layout, the flags among them. Layers that run at the
// same time have one each.
struct Workspace {
  MoeCapacity capacity;
  int num_flags;
  RegionId counts;       // [num_ranks, num_experts] int32, written by each source
  RegionId rows;         // [max_blocks, block_rows, hidden] as the inputs are stored
  RegionId origins;      // [max_blocks, block_rows] which slot of its owner a row belongs to
  RegionId activations;  // [activation slots, block_rows, intermediate] fp32
  RegionId slots;        // [tokens, num_slots, hidden] fp32
  RegionId signals;
};

// Which slot of its owner a dispatched row belongs to.
struct RowOrigin {
  std::int32_t token;  // of the owner's tokens
  std::int32_t slot;
};

Workspace reserve_workspace(Layout& layout, const MoeShape& shape, const MoeTiling& tiling, int num_ranks,
                            const MoeCapacity& capacity, DType dtype);
// What that takes of every rank's memory.
std::size_t workspace_bytes(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const MoeCapacity& capacity,
                            DType dtype);

}  // namespace xs::moe
