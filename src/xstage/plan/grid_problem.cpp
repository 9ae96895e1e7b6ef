#include "xstage/plan/grid_problem.hpp"

#include <algorithm>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {

GridProblem::GridProblem(GridForm form, const GridShape& shape, const GridTiling& tiling, const GridCosts& costs)
    : form_(form), tiling_(tiling), costs_(costs), row_begin_{0}, cols_(shape.cols) {
  require(!shape.rows.empty() && shape.rows.size() == shape.cols.size(),
          "grid: rows and columns of at least one rank expected, found {} and {}", shape.rows.size(),
          shape.cols.size());
  require(tiling.rows >= 1 && tiling.cols >= 1 && tiling.reduce_rows >= 1,
          "grid: every tile extent must be at least 1");
  const auto counts_in_32_bits = [](std::int64_t count) { return count >= 0 && std::in_range<std::int32_t>(count); };
  require(std::ranges::all_of(shape.rows, counts_in_32_bits) && std::ranges::all_of(shape.cols, counts_in_32_bits),
          "grid: rows and columns must be 0 to 2147483647");
  for (const auto rows : shape.rows) row_begin_.push_back(row_begin_.back() + rows);
  require(counts_in_32_bits(num_rows()), "grid: {} rows are more than 32 bits count", num_rows());
}

std::vector<GridSegment> GridProblem::segments(std::int32_t row_tile) const {
  const std::int64_t begin = std::int64_t{row_tile} * tiling_.rows;
  const std::int64_t end = std::min(begin + tiling_.rows, num_rows());
  std::vector<GridSegment> found;
  for (int owner = 0; owner < num_ranks(); ++owner) {
    const auto first = std::max(begin, row_begin(owner));
    const auto last = std::min(end, row_begin(owner + 1));
    if (first < last) {
      found.push_back({owner, static_cast<std::int32_t>(first - begin), static_cast<std::int32_t>(last - first)});
    }
  }
  return found;
}

GridCounts GridProblem::counts(int rank) const {
  const auto num_tiles = [](std::int64_t count, std::int64_t extent) {
    return static_cast<std::int32_t>((count + extent - 1) / extent);
  };
  GridCounts counts;
  counts.rank = rank;
  counts.num_ranks = num_ranks();
  counts.row_tiles = num_tiles(num_rows(), tiling_.rows);
  counts.col_tiles = num_tiles(cols(rank), tiling_.cols);
  counts.starts = rotation_starts(row_begin(rank), row_begin(rank + 1), num_rows(), tiling_.rows);
  if (form_ == GridForm::gather) {
    counts.num_dispatch = num_ranks() - 1;
  } else {
    counts.num_reduce = num_tiles(row_begin(rank + 1) - row_begin(rank), tiling_.reduce_rows);
  }
  return counts;
}

std::vector<FlagGroup> GridProblem::flags() const {
  return {{form_ == GridForm::scatter ? "written" : "arrived", 0, num_ranks()}};
}

// Row tiles with rows of the owner.
std::int32_t GridProblem::row_tiles_of(int owner) const {
  const auto begin = row_begin(owner), end = row_begin(owner + 1);
  return begin == end ? 0 : static_cast<std::int32_t>((end - 1) / tiling_.rows - begin / tiling_.rows + 1);
}

// The one place that knows what a grid's task reads, sends and publishes.
void GridProblem::append_effects(const GridCounts& own, const Task& task, RankSchedule& out) const {
  switch (task.kind) {
    case TaskKind::dispatch: {
      const auto rows = row_begin(own.rank + 1) - row_begin(own.rank);
      const double bytes = static_cast<double>(rows) * costs_.shard_row;
      out.work.push_back({0, bytes});
      if (rows == 0) return;
      const int peer = shard_peer(own, task.block);
      if (bytes >= 1) out.sends.append({peer, static_cast<std::int64_t>(bytes)});
      out.raises.append({peer, own.rank, 1});
      return;
    }
    case TaskKind::tile: {
      const auto num_cols =
          std::min<std::int64_t>(tiling_.cols, cols(own.rank) - std::int64_t{task.tile} * tiling_.cols);
      out.work.push_back(costs_.tile);
      for (const auto& segment : segments(task.block)) {
        const double bytes = segment.count * static_cast<double>(num_cols) * costs_.element;
        const int target = form_ == GridForm::scatter ? segment.owner : own.rank;
        if (bytes >= 1) out.sends.append({target, static_cast<std::int64_t>(bytes)});
        if (form_ == GridForm::scatter) {
          out.raises.append({segment.owner, own.rank, 1});
        } else if (segment.owner != own.rank) {
          out.waits.append({segment.owner, 1});
        }
      }
      return;
    }
    case TaskKind::reduce: {
      const std::int64_t first = std::int64_t{task.block} * tiling_.reduce_rows;
      const auto rows =
          std::min<std::int64_t>(tiling_.reduce_rows, row_begin(own.rank + 1) - row_begin(own.rank) - first);
      double elements = 0;
      for (int source = 0; source < num_ranks(); ++source) {
        elements += static_cast<double>(rows * cols(source));
        const auto tiles = std::int64_t{row_tiles_of(own.rank)} * counts(source).col_tiles;
        if (tiles > 0) out.waits.append({source, tiles});
      }
      out.work.push_back({0, elements * costs_.reduce_element});
      return;
    }
    case TaskKind::linear1:
    case TaskKind::linear2:
      check(false, "a grid has no {}", to_string(task));
  }
}

Schedule GridProblem::schedule(Rotation rotation) const {
  Schedule schedule;
  schedule.flags = flags();
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const GridCounts own = counts(rank);
    RankSchedule& out = schedule.ranks.emplace_back();
    out.grids = {{TaskKind::dispatch, own.num_dispatch, 1},
                 {TaskKind::tile, own.row_tiles, own.col_tiles},
                 {TaskKind::reduce, own.num_reduce, 1}};
    out.tasks = expand(rotation, own);
    for (const Task& task : out.tasks) {
      append_effects(own, task, out);
      out.end_rows();
    }
  }
  return schedule;
}

}  // namespace xs
