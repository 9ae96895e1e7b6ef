#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xstage/plan/grid_order.hpp"
#include "xstage/plan/schedule.hpp"

// A product or an attention whose rows lie on all ranks, as a problem of order: a grid of output tiles on every rank,
// rows by owner, columns its own. Tiles are cut without regard to owners, so a tile may have rows of two or more.

namespace xs {

enum class GridForm {
  scatter,  // a tile's rows go to their owners: a product with reduce-scatter, attention's heads back to tokens
  gather,   // a tile reads its rows from their owners' shards: all-gather with a product
};

struct GridShape {
  std::vector<std::int64_t> rows;  // [rank] that it owns; they stand in the order of ranks
  std::vector<std::int64_t> cols;  // [rank] of its grid
};

struct GridTiling {
  int rows = 128;
  int cols = 128;
  int reduce_rows = 32;  // of a closing task, scatter only
};

struct GridCosts {
  Work tile{0, 0};            // of a full tile
  double element = 2;         // bytes that a tile stores for each of its elements
  double shard_row = 0;       // bytes of a row of a shard, gather only
  double reduce_element = 0;  // bytes that a closing task reads of each element that came in; 0: it only closes
};

// `owner`'s rows [first, first + count) of a row tile.
struct GridSegment {
  int owner;
  std::int32_t first;
  std::int32_t count;
  friend bool operator==(const GridSegment&, const GridSegment&) = default;
};

class GridProblem {
 public:
  GridProblem(GridForm form, const GridShape& shape, const GridTiling& tiling, const GridCosts& costs);

  GridForm form() const { return form_; }
  int num_ranks() const { return static_cast<int>(cols_.size()); }
  std::int64_t row_begin(int owner) const { return row_begin_[static_cast<std::size_t>(owner)]; }
  std::int64_t num_rows() const { return row_begin_.back(); }
  std::vector<GridSegment> segments(std::int32_t row_tile) const;

  GridCounts counts(int rank) const;

  // scatter: written[source] counts that rank's tiles with rows of this rank. gather: arrived[source], 1 when its
  // shard is here.
  std::vector<FlagGroup> flags() const;
  Schedule schedule(Rotation rotation) const;

 private:
  std::int64_t cols(int rank) const { return cols_[static_cast<std::size_t>(rank)]; }
  std::int32_t row_tiles_of(int owner) const;
  void append_effects(const GridCounts& own, const Task& task, RankSchedule& schedule) const;

  GridForm form_;
  GridTiling tiling_;
  GridCosts costs_;
  std::vector<std::int64_t> row_begin_;  // [num_ranks + 1]
  std::vector<std::int64_t> cols_;       // [num_ranks]
};

}  // namespace xs
