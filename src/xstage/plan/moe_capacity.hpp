#pragma once

#include <cstdint>

#include "xstage/plan/moe_problem.hpp"

// What a rank has room for. It is fixed before any routing is known, so that memory can be reserved once; a routing
// that asks for more is refused before anything of it is written.

namespace xs {

struct MoeCapacity {
  std::int64_t tokens = 0;         // that a rank may have
  std::int64_t rows = 0;           // that a rank may receive, those of its own tokens and of shared experts included
  std::int64_t local_experts = 0;  // that a rank may hold, shared ones included

  // Row blocks that the rows can fill, in whatever way they are spread over the experts.
  std::int64_t max_blocks(int block_rows) const;
  friend bool operator==(const MoeCapacity&, const MoeCapacity&) = default;
};

// For every routing of ranks with up to max_tokens tokens each: all of them may send all their slots to one rank.
MoeCapacity worst_case(const MoeShape& shape, const ExpertMap& experts, int num_ranks, std::int64_t max_tokens);
// Just enough for this problem, or room for `rows` rows where that is not 0.
MoeCapacity capacity_of(const MoeProblem& problem, std::int64_t rows = 0);
// Throws Error(usage) that names the rank, what it needs and what there is.
void require_capacity(const MoeProblem& problem, const MoeCapacity& capacity);

}  // namespace xs
