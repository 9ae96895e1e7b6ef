#include "xstage/plan/moe_placement.hpp"

#include <algorithm>
#include <numeric>

#include "xstage/core/csv.hpp"
#include "xstage/core/error.hpp"
#include "xstage/plan/order.hpp"

namespace xs {

ExpertMap::ExpertMap(std::vector<std::vector<std::int32_t>> holders, int num_ranks) : holders_(std::move(holders)) {
  for (std::size_t expert = 0; expert < holders_.size(); ++expert) {
    auto& ranks = holders_[expert];
    require(!ranks.empty(), "expert map: no rank holds expert {}", expert);
    std::ranges::sort(ranks);
    require(ranks.front() >= 0 && ranks.back() < num_ranks,
            "expert map: expert {} lies on rank {}; expected ranks from 0 to {}", expert,
            ranks.front() < 0 ? ranks.front() : ranks.back(), num_ranks - 1);
    const auto twice = std::ranges::adjacent_find(ranks);
    require(twice == ranks.end(), "expert map: expert {} lies on rank {} twice", expert,
            twice == ranks.end() ? 0 : *twice);
  }
}

ExpertMap ExpertMap::with_shared(int count, int num_ranks) const {
  std::vector<std::int32_t> everyone(static_cast<std::size_t>(num_ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto holders = holders_;
  holders.insert(holders.end(), static_cast<std::size_t>(count), everyone);
  return {std::move(holders), num_ranks};
}

ExpertMap contiguous_experts(int num_experts, int num_ranks) {
  std::vector<std::vector<std::int32_t>> holders;
  for (int expert = 0; expert < num_experts; ++expert) {
    holders.push_back({static_cast<std::int32_t>(split_part(num_experts, num_ranks, expert))});
  }
  return {std::move(holders), num_ranks};
}

ExpertMap strided_experts(int num_experts, int num_ranks) {
  std::vector<std::vector<std::int32_t>> holders;
  for (int expert = 0; expert < num_experts; ++expert) holders.push_back({expert % num_ranks});
  return {std::move(holders), num_ranks};
}

ExpertMap read_expert_map(const std::filesystem::path& file, int num_experts, int num_ranks) {
  const auto csv = Csv::read(file);
  const auto expert = csv.column("expert"), rank = csv.column("rank");
  std::vector<std::vector<std::int32_t>> holders(static_cast<std::size_t>(num_experts));
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    holders[static_cast<std::size_t>(csv.integer(row, expert, 0, num_experts - 1))].push_back(
        static_cast<std::int32_t>(csv.integer(row, rank, 0, num_ranks - 1)));
  }
  try {
    return {std::move(holders), num_ranks};
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", file.string(), error.what());
  }
}

std::vector<std::int64_t> even_tokens(std::int64_t num_tokens, int num_ranks) {
  std::vector<std::int64_t> tokens;
  for (int rank = 0; rank < num_ranks; ++rank) {
    tokens.push_back(split_begin(num_tokens, num_ranks, rank + 1) - split_begin(num_tokens, num_ranks, rank));
  }
  return tokens;
}

MoePlacement complete(MoePlacement placement, const MoeShape& shape, int num_ranks, std::int64_t num_tokens) {
  require(num_ranks >= 1 && num_tokens >= 0, "ranks must be at least 1 and tokens at least 0, found {} and {}",
          num_ranks, num_tokens);
  if (placement.tokens.empty()) placement.tokens = even_tokens(num_tokens, num_ranks);
  if (placement.experts.num_experts() == 0) placement.experts = contiguous_experts(shape.num_experts, num_ranks);
  require(placement.num_ranks() == num_ranks, "tokens per rank: {} ranks expected, {} numbers found", num_ranks,
          placement.num_ranks());
  const auto sum = std::accumulate(placement.tokens.begin(), placement.tokens.end(), std::int64_t{0});
  require(sum == num_tokens, "tokens per rank: their sum {} is not the number of tokens, {}", sum, num_tokens);
  return placement;
}

}  // namespace xs
