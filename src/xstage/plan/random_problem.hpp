#pragma once

#include <algorithm>
#include <string>

#include "xstage/core/test_support.hpp"
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

// 1 to 9 ranks, 1 to 24 experts (fewer than ranks among them), down to no token at all; every known routing, some with
// unused slots and some with experts that nobody asks for. Tiles divide the shapes only by chance.
inline RandomProblem random_problem(std::uint64_t seed) {
  Dice dice(seed);
  const int num_ranks = dice.whole(1, 9);
  MoeShape shape{dice.whole(1, 200), dice.whole(1, 120), dice.whole(1, 24), 0};
  shape.topk = dice.whole(1, std::min(shape.num_experts, 4));
  const MoeTiling tiling{dice.whole(1, 16), dice.whole(8, 48), dice.whole(8, 96), dice.whole(1, 8)};
  const auto num_tokens = chance(dice, 0.1) ? dice.whole(0, 3) : dice.whole(4, 80);
  const auto names = list_routings();
  const auto& name = names[pick(dice, names.size())].name;
  Routing routing = make_routing(name, num_tokens, shape.num_experts, shape.topk, seed);
  const double unused = chance(dice, 0.5) ? 0.3 : 0;
  const auto shunned = chance(dice, 0.3) ? dice.whole(0, shape.num_experts - 1) : -1;
  for (auto& expert : routing.expert) {
    if (expert == shunned || chance(dice, unused)) expert = -1;
  }
  auto problem = make_problem(shape, tiling, num_ranks, routing);
  return {fmt::format("seed {}: {} ranks, {} tokens, {} experts, top-{}, {}", seed, num_ranks, num_tokens,
                      shape.num_experts, shape.topk, name),
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

// Serial, and waves of every size up to all local experts and beyond.
inline Order random_order(std::uint64_t seed) {
  Dice dice(seed);
  if (chance(dice, 0.3)) return {OrderKind::serial};
  return {OrderKind::wave, dice.whole(1, 9)};
}

}  // namespace xs
