#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/grid_problem.hpp"
#include "xstage/plan/moe_problem.hpp"

// For tests of plan and sim: random problems as a function of a seed.

namespace xs {

// One of `count` things.
inline std::size_t pick(Dice& dice, std::size_t count) {
  return static_cast<std::size_t>(dice.whole(0, static_cast<int>(count) - 1));
}
inline bool chance(Dice& dice, double probability) { return dice.between(0, 1) < probability; }

struct RandomProblem {
  std::string what;  // for SCOPED_TRACE
  Routing routing;
  MoeProblem problem;
};

// Tokens as each rank happens to have them, ranks with none among them.
inline std::vector<std::int64_t> random_tokens(Dice& dice, std::int64_t num_tokens, int num_ranks) {
  std::vector<std::int64_t> cuts{0, num_tokens};
  for (int cut = 1; cut < num_ranks; ++cut) cuts.push_back(dice.whole(0, static_cast<int>(num_tokens)));
  std::ranges::sort(cuts);
  std::vector<std::int64_t> tokens;
  for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) tokens.push_back(cuts[rank + 1] - cuts[rank]);
  return tokens;
}

// Any rank for every expert, ranks without any among them; one expert in three has replicas.
inline ExpertMap random_experts(Dice& dice, int num_experts, int num_ranks) {
  std::vector<std::vector<std::int32_t>> holders(static_cast<std::size_t>(num_experts));
  for (auto& ranks : holders) {
    const int count = chance(dice, 1.0 / 3) ? dice.whole(1, num_ranks) : 1;
    for (int first = dice.whole(0, num_ranks - 1), i = 0; i < count; ++i) ranks.push_back((first + i) % num_ranks);
  }
  return {std::move(holders), num_ranks};
}

// Every second one as even as can be.
inline MoePlacement random_placement(Dice& dice, const MoeShape& shape, std::int64_t num_tokens, int num_ranks) {
  MoePlacement placement;
  if (chance(dice, 0.5)) placement.tokens = random_tokens(dice, num_tokens, num_ranks);
  if (chance(dice, 0.5)) placement.experts = random_experts(dice, shape.num_experts, num_ranks);
  return complete(std::move(placement), shape, num_ranks, num_tokens);
}

// 1 to 9 ranks, 1 to 24 experts (fewer than ranks among them) on any of them, down to no token at all; every known
// routing, some with unused slots and some with experts that nobody asks for. Tiles divide the shapes only by chance.
inline RandomProblem random_problem(std::uint64_t seed) {
  Dice dice(seed);
  const int num_ranks = dice.whole(1, 9);
  MoeShape shape{dice.whole(1, 200), dice.whole(1, 120), dice.whole(1, 24), 0, 0};
  shape.topk = dice.whole(1, std::min(shape.num_experts, 4));
  if (chance(dice, 0.3)) shape.num_shared = dice.whole(1, 2);
  const MoeTiling tiling{dice.whole(1, 16), dice.whole(8, 48), dice.whole(8, 96), dice.whole(1, 8), 0,
                         dice.whole(1, 3)};
  const auto num_tokens = chance(dice, 0.1) ? dice.whole(0, 3) : dice.whole(4, 80);
  const auto names = list_routings();
  const auto& name = names[pick(dice, names.size())].name;
  Routing routing = make_routing(name, num_tokens, shape.num_experts, shape.topk, seed);
  const double unused = chance(dice, 0.5) ? 0.3 : 0;
  const auto shunned = chance(dice, 0.3) ? dice.whole(0, shape.num_experts - 1) : -1;
  for (auto& expert : routing.expert) {
    if (expert == shunned || chance(dice, unused)) expert = -1;
  }
  auto placement = random_placement(dice, shape, num_tokens, num_ranks);
  const auto tokens = fmt::format("{}", fmt::join(placement.tokens, " "));
  auto problem = make_problem(shape, tiling, num_ranks, routing, std::move(placement));
  return {fmt::format("seed {}: {} ranks with {} tokens, {} experts, top-{}, {} shared, {}", seed, num_ranks, tokens,
                      shape.num_experts, shape.topk, shape.num_shared, name),
          std::move(routing), std::move(problem)};
}

// Calls body(random) for 300 problems, up to the first that fails.
template <class Body>
void for_random_problems(Body&& body) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto random = random_problem(seed);
    SCOPED_TRACE(random.what);
    body(random);
    if (testing::Test::HasFailure()) return;
  }
}

// Calls body(problem, rank, counts) for every rank of 300 problems.
template <class Body>
void for_random_ranks(Body&& body) {
  for_random_problems([&](const RandomProblem& random) {
    for (int rank = 0; rank < random.problem.num_ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      body(random.problem, rank, random.problem.counts(rank));
      if (testing::Test::HasFailure()) return;
    }
  });
}

// Every order with an N below, at and beyond what it counts, and every rotation.
inline std::vector<Order> orders_of(const Counts& counts) {
  const std::int32_t blocks = counts.num_blocks(), beyond = std::numeric_limits<std::int32_t>::max();
  std::vector<Order> orders{{OrderKind::serial}};
  for (int n = 1; n <= counts.num_groups + 1; ++n) orders.push_back({OrderKind::wave, n});
  for (const int n : {2, 3, blocks, beyond}) orders.push_back({OrderKind::waves, std::max(n, 1)});
  for (const int n : {1, 2, 7, counts.linear2_tiles, 132, beyond}) orders.push_back({OrderKind::alternate, n});
  for (const int n : {1, 2, 5, blocks - 1, blocks, beyond}) orders.push_back({OrderKind::lag, std::max(n, 1)});
  const auto num_natural = orders.size();
  for (std::size_t i = 0; i < num_natural; ++i) {
    orders.push_back(orders[i]);
    orders.back().rotation = i % 2 == 0 ? Rotation::own_last : Rotation::own_first;
  }
  return orders;
}

// Every order with every rotation, its N from 1 to more than a small problem has.
inline Order random_order(std::uint64_t seed) {
  Dice dice(~seed);  // not the numbers that random_problem(seed) takes
  const auto kind = static_cast<OrderKind>(dice.whole(0, static_cast<int>(OrderKind::lag)));
  const auto rotation = static_cast<Rotation>(dice.whole(0, static_cast<int>(Rotation::own_first)));
  return {kind, kind == OrderKind::serial ? 1 : dice.whole(1, kind == OrderKind::alternate ? 40 : 9), rotation};
}

struct RandomGrid {
  std::string what;
  GridShape shape;
  GridTiling tiling;
  GridProblem problem;
};

// 1 to 9 ranks; owners with no rows and ranks with no columns among them, lengths that no tile divides, tiles with rows
// of many owners.
inline RandomGrid random_grid(std::uint64_t seed) {
  Dice dice(seed);
  const auto form = chance(dice, 0.5) ? GridForm::scatter : GridForm::gather;
  GridShape shape;
  const int most_rows = dice.whole(0, 60), most_cols = dice.whole(0, 60);
  for (int rank = dice.whole(1, 9); rank > 0; --rank) {
    shape.rows.push_back(chance(dice, 0.1) ? 0 : dice.whole(0, most_rows));
    shape.cols.push_back(chance(dice, 0.1) ? 0 : dice.whole(0, most_cols));
  }
  const GridTiling tiling{dice.whole(1, 24), dice.whole(1, 24), dice.whole(1, 24)};
  GridProblem problem(form, shape, tiling, {{dice.between(0, 1e5), dice.between(0, 1e4)}, 2, 64, 4});
  return {fmt::format("seed {}: {}, rows {}, columns {}, tiles {} x {}", seed,
                      form == GridForm::scatter ? "scatter" : "gather", fmt::join(shape.rows, " "),
                      fmt::join(shape.cols, " "), tiling.rows, tiling.cols),
          shape, tiling, std::move(problem)};
}

inline constexpr Rotation kRotations[] = {Rotation::natural, Rotation::own_last, Rotation::own_first};

// Calls body(random) for 300 grids, up to the first that fails.
template <class Body>
void for_random_grids(Body&& body) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto random = random_grid(seed);
    SCOPED_TRACE(random.what);
    body(random);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace xs
