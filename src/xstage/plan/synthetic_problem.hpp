#pragma once

#include "xstage/plan/order.hpp"
#include "xstage/plan/schedule.hpp"

// The two linears of an MoE layer on one rank, with nothing around them: row blocks that are all here at the start, and
// one peer that only receives. What a kernel with timed spins in place of its products does, and what a measured rank
// does whose rows all belong to a peer.

namespace xs {

struct SyntheticShape {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int32_t num_blocks = 0;  // of 128 rows
  int block_rows = 128;
  int tile_cols = 128;             // of both products; Linear-1 computes as many gate as up columns in two tiles
  std::int64_t linear1_bytes = 0;  // that a Linear-1 tile stores locally
  std::int64_t linear2_bytes = 0;  // that a Linear-2 tile stores to the peer
  bool remote = true;              // false: to the own memory, the control
};

// Ranks 0 and 1; rank 1 has no tasks. activated[block] of rank 0 counts Linear-1 tiles, combined[0] of rank 1 all
// others.
class SyntheticProblem {
 public:
  explicit SyntheticProblem(const SyntheticShape& shape);

  Counts counts() const;
  Schedule schedule(const Order& order) const;

 private:
  SyntheticShape shape_;
  std::vector<std::int32_t> group_blocks_;
  RotationStarts start_{};
};

}  // namespace xs
