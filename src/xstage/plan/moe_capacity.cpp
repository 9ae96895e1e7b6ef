#include "xstage/plan/moe_capacity.hpp"

#include <algorithm>

#include "xstage/core/error.hpp"

namespace xs {

std::int64_t MoeCapacity::max_blocks(int block_rows) const {
  // One row opens a block of every expert; of the other rows only every block_rows-th opens one.
  if (rows <= local_experts) return rows;
  return local_experts + (rows - local_experts) / block_rows;
}

MoeCapacity worst_case(const MoeShape& shape, const ExpertMap& experts, int num_ranks, std::int64_t max_tokens) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(num_ranks));
  for (int expert = 0; expert < experts.num_experts(); ++expert) {
    for (const auto rank : experts.holders(expert)) ++held[static_cast<std::size_t>(rank)];
  }
  const auto routed = std::ranges::max(held);
  const auto sent = std::min<std::int64_t>(shape.topk, routed);  // experts of a token are distinct
  return {max_tokens, max_tokens * (num_ranks * sent + shape.num_shared), routed + shape.num_shared};
}

MoeCapacity capacity_of(const MoeProblem& problem, std::int64_t rows) {
  MoeCapacity needed;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    needed.tokens = std::max(needed.tokens, problem.tokens_of(rank));
    needed.rows = std::max(needed.rows, problem.rows_received(rank));
    needed.local_experts = std::max(needed.local_experts, std::ssize(problem.local_experts(rank)));
  }
  if (rows > 0) needed.rows = rows;
  return needed;
}

void require_capacity(const MoeProblem& problem, const MoeCapacity& capacity) {
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    const auto rows = problem.rows_received(rank);
    require(
        rows <= capacity.rows,
        "capacity: rank {} receives {} rows, there is room for {}; raise the capacity, send fewer tokens at once or "
        "spread the experts differently",
        rank, rows, capacity.rows);
    require(problem.tokens_of(rank) <= capacity.tokens, "capacity: rank {} has {} tokens, there is room for {}", rank,
            problem.tokens_of(rank), capacity.tokens);
    const auto held = std::ssize(problem.local_experts(rank));
    require(held <= capacity.local_experts, "capacity: rank {} holds {} experts, there is room for {}", rank, held,
            capacity.local_experts);
  }
}

}  // namespace xs
