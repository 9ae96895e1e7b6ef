#include "xstage/op/moe/moe_workspace.hpp"

#include "xstage/signal/signals.hpp"

namespace xs::moe {

Workspace reserve_workspace(Layout& layout, const MoeShape& shape, const MoeTiling& tiling, int num_ranks,
                            const MoeCapacity& capacity, DType dtype) {
  const auto bytes = [](std::int64_t count, std::int64_t width, std::size_t element) {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(width) * element;
  };
  const auto blocks = capacity.max_blocks(tiling.block_rows);
  const auto rows = blocks * tiling.block_rows;
  const auto num_flags = static_cast<int>(MoeProblem::most_flags(num_ranks, blocks));
  return {capacity,
          num_flags,
          layout.add("counts", bytes(num_ranks, shape.num_experts, sizeof(std::int32_t))),
          layout.add("rows", bytes(rows, shape.hidden, size_of(dtype))),
          layout.add("origins", bytes(rows, 1, sizeof(RowOrigin))),
          layout.add("activations",
                     bytes(tiling.activation_slots(blocks) * tiling.block_rows, shape.intermediate, sizeof(float))),
          layout.add("slots", bytes(capacity.tokens * shape.num_slots(), shape.hidden, sizeof(float))),
          Signals::reserve(layout, num_flags, num_ranks)};
}

std::size_t workspace_bytes(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const MoeCapacity& capacity,
                            DType dtype) {
  Layout layout;
  reserve_workspace(layout, shape, tiling, num_ranks, capacity, dtype);
  return layout.total_bytes();
}

}  // namespace xs::moe
