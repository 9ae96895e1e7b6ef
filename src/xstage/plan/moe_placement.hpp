#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "xstage/plan/moe_shape.hpp"

// How a layer lies on ranks: whose the tokens are and who holds which expert.

namespace xs {

// Which ranks hold each expert. Of an expert with n holders, rank r sends all its rows to holder r % n, holders in
// ascending order: every source serves itself without asking anyone, an expert that every rank holds stays at home,
// and rows of one source stay together.
class ExpertMap {
 public:
  ExpertMap() = default;
  // holders[expert]: at least one rank each, none twice, in any order.
  ExpertMap(std::vector<std::vector<std::int32_t>> holders, int num_ranks);

  int num_experts() const { return static_cast<int>(holders_.size()); }
  std::span<const std::int32_t> holders(std::int32_t expert) const {
    return holders_[static_cast<std::size_t>(expert)];
  }
  std::int32_t holder(std::int32_t expert, int source) const {
    const auto& ranks = holders_[static_cast<std::size_t>(expert)];
    return ranks[static_cast<std::size_t>(source) % ranks.size()];
  }
  // And `count` more experts that every rank holds.
  ExpertMap with_shared(int count, int num_ranks) const;
  friend bool operator==(const ExpertMap&, const ExpertMap&) = default;

 private:
  std::vector<std::vector<std::int32_t>> holders_;  // [expert], ascending
};

// Expert after expert, as evenly as contiguous parts allow.
ExpertMap contiguous_experts(int num_experts, int num_ranks);
// Expert e on rank e % num_ranks.
ExpertMap strided_experts(int num_experts, int num_ranks);
// A CSV file with the columns expert and rank; an expert with replicas has several rows.
ExpertMap read_expert_map(const std::filesystem::path& file, int num_experts, int num_ranks);

struct MoePlacement {
  std::vector<std::int64_t> tokens;  // [rank]; rank 0 has the first ones, and so on
  ExpertMap experts;                 // routed ones; every rank holds all shared experts

  int num_ranks() const { return static_cast<int>(tokens.size()); }
  friend bool operator==(const MoePlacement&, const MoePlacement&) = default;
};

std::vector<std::int64_t> even_tokens(std::int64_t num_tokens, int num_ranks);
// Tokens as even as can be where there are none, contiguous experts where there is no map.
MoePlacement complete(MoePlacement placement, const MoeShape& shape, int num_ranks, std::int64_t num_tokens);

}  // namespace xs
