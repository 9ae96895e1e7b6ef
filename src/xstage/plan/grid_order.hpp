#pragma once

#include <cstdint>
#include <vector>

#include "xstage/plan/rotation.hpp"
#include "xstage/plan/task.hpp"

// Orders of a grid of output tiles: pure functions (claim index, GridCounts) -> Task, usable on host and device.
//
// All have the frame: dispatch tasks, tiles, reduce tasks. A rank visits its row tiles in a Rotation and does all
// column tiles of one before the next. Where tiles send, own_last leaves no transfer for the end; where tiles read,
// own_first needs none at the beginning.

namespace xs {

struct GridCounts {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
  std::int32_t num_dispatch = 0;  // peers that get the own shard
  std::int32_t row_tiles = 0;
  std::int32_t col_tiles = 0;
  std::int32_t num_reduce = 0;
  RotationStarts starts;

  XS_HD constexpr std::int64_t num_tiles() const { return std::int64_t{row_tiles} * col_tiles; }
  XS_HD constexpr std::int64_t num_tasks() const { return num_dispatch + num_tiles() + num_reduce; }
};

// Who gets the own shard in a step. With own_first the previous rank needs it first, then the one before that: in every
// step all ranks send to different peers what these read next.
XS_HD constexpr std::int32_t shard_peer(const GridCounts& counts, std::int32_t step) {
  return (counts.rank + counts.num_ranks - 1 - step) % counts.num_ranks;
}

// The task at a claim index in [0, counts.num_tasks()).
XS_HD constexpr Task task_at(Rotation rotation, const GridCounts& counts, std::int64_t claim) {
  if (claim < counts.num_dispatch) return {TaskKind::dispatch, static_cast<std::int32_t>(claim), 0};
  const std::int64_t index = claim - counts.num_dispatch;
  if (index >= counts.num_tiles()) {
    return {TaskKind::reduce, static_cast<std::int32_t>(index - counts.num_tiles()), 0};
  }
  const auto position = static_cast<std::int32_t>(index / counts.col_tiles);
  return {TaskKind::tile, rotated(rotation, counts.starts, position, counts.row_tiles),
          static_cast<std::int32_t>(index % counts.col_tiles)};
}

std::vector<Task> expand(Rotation rotation, const GridCounts& counts);

}  // namespace xs
