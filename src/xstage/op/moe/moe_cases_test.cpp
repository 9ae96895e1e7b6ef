#include <gtest/gtest.h>

#include <algorithm>

#include "xstage/op/moe/moe_test_support.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/random_problem.hpp"

// Layers at the edges of what a layer can be: each gives the same bits in every order, however it lies on ranks, and
// those are the reference's within rounding.

namespace xs::moe {
namespace {

constexpr bool kSlow = kSlower > 1;

struct Layer {
  std::string symptom;  // of which it is free
  Inputs inputs;
  RunOptions options;  // ranks, placement and tiling
};

Layer layer_of(std::string symptom, const MoeShape& shape, Routing routing, int num_ranks, MoePlacement placement = {},
               DType dtype = DType::fp32) {
  Layer layer{std::move(symptom), make_inputs(shape, std::move(routing), {}, 7, dtype), {}};
  layer.options.num_ranks = num_ranks;
  layer.options.placement = std::move(placement);
  layer.options.tiling = {8, 16, 16, 4};
  return layer;
}

Routing routing_of(const MoeShape& shape, std::int64_t num_tokens, const std::string& name = "zipf") {
  return make_routing(name, num_tokens, shape.num_experts, shape.topk, 7);
}

// Every second slot unused, or all of them.
Routing masked(Routing routing, std::size_t stride) {
  for (std::size_t slot = 0; slot < routing.expert.size(); slot += stride) routing.expert[slot] = -1;
  return routing;
}

// Tokens of rank r ask for the experts of rank r alone.
Routing at_home(const MoeShape& shape, std::int64_t num_tokens, int num_ranks) {
  auto routing = routing_of(shape, num_tokens);
  const auto local = shape.num_experts / num_ranks;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    const auto first = local * static_cast<std::int32_t>(split_part(num_tokens, num_ranks, token));
    for (int slot = 0; slot < shape.topk; ++slot) {
      routing.expert[static_cast<std::size_t>(token * shape.topk + slot)] =
          first + static_cast<std::int32_t>((token + slot) % local);
    }
  }
  return routing;
}

std::vector<Layer> layers() {
  const MoeShape shape{40, 24, 12, 3}, shared{40, 24, 12, 3, 2}, few{40, 24, 3, 2}, many{16, 8, 512, 8},
      sixteen{24, 16, 20, 16}, seven{24, 16, 16, 7}, one{24, 16, 8, 1};
  const auto replicas = [](const MoeShape& of, int num_ranks) {
    Dice dice(3);
    return random_experts(dice, of.num_experts, num_ranks);
  };
  const ExpertMap everywhere(std::vector<std::vector<std::int32_t>>(12, {0, 1, 2, 3}), 4);
  const ExpertMap on_the_last(std::vector<std::vector<std::int32_t>>(12, {3}), 4);
  auto clamped = layer_of("ClampedActivations", shared, routing_of(shared, 30), 4);
  clamped.inputs.clamp = 0.05f;
  return {
      std::move(clamped),
      layer_of("TokensMaskedInEverySlotGiveZeros", shape, masked(routing_of(shape, 30), 1), 4),
      layer_of("MaskedSlotsTouchNoOtherToken", shape, masked(routing_of(shape, 30), 2), 4),
      layer_of("MaskedTokensStillPassTheSharedExperts", shared, masked(routing_of(shared, 30), 1), 4),
      layer_of("NoTokenAtAllIsNoCrash", shape, routing_of(shape, 0), 4),
      layer_of("ZeroTokenRankDoesNotHang", shape, routing_of(shape, 30), 4, {{0, 17, 0, 13}, {}}),
      layer_of("AllTokensOnOneRankDoNotHang", shared, routing_of(shared, 30), 4, {{0, 0, 30, 0}, {}}),
      layer_of("AllTokensToOneRankFit", shape, routing_of(shape, 60, "all-to-one"), 4),
      layer_of("OneRankWithAllExpertsServesTheOthers", shape, routing_of(shape, 30), 4, {{}, on_the_last}),
      layer_of("RoutingAtHomeWaitsForNoPeer", shape, at_home(shape, 36, 4), 4),
      layer_of("ExpertsThatRanksDoNotDivide", shape, routing_of(shape, 30), 5),
      layer_of("RanksWithoutExpertsDoNotHang", few, routing_of(few, 30), 8),
      layer_of("FiveHundredTwelveExpertsOnEightRanks", many, routing_of(many, 40, "moderate"), 8),
      layer_of("FiveHundredTwelveExpertsOnThreeRanksWithReplicas", many, routing_of(many, 24), 3,
               {{}, replicas(many, 3)}),
      layer_of("TopSixteen", sixteen, routing_of(sixteen, 25), 4),
      layer_of("OddTopSeven", seven, routing_of(seven, 25), 3, {{}, strided_experts(16, 3)}),
      layer_of("TopOne", one, routing_of(one, 25), 8),
      layer_of("ReplicasOfSomeExperts", shape, routing_of(shape, 60), 5, {{}, replicas(shape, 5)}),
      layer_of("ReplicasOnEveryRankStayAtHome", shared, routing_of(shared, 30), 4, {{1, 12, 9, 8}, everywhere}),
      layer_of("StridedExpertsWithSharedOnes", shared, routing_of(shared, 30), 4, {{}, strided_experts(12, 4)}),
      layer_of("Bf16WithSharedExpertsAndUnevenTokens", shared, routing_of(shared, 30), 4, {{9, 0, 20, 1}, {}},
               DType::bf16),
  };
}

// Another order would not be another bit: what one rank computes in the plainest order.
std::vector<float> alone(const Layer& layer) {
  RunOptions options;
  options.tiling = layer.options.tiling;
  return run_on_host(layer.inputs, options).output;
}

void expect_reference(const Inputs& inputs, const std::vector<float>& output) {
  const auto verification = verify(inputs, output);
  EXPECT_EQ(verification.num_tokens, inputs.num_tokens());
  EXPECT_LE(verification.max_error, verification.tolerance);
}

class MoeCase : public testing::TestWithParam<Layer> {
 protected:
  const Inputs& inputs_ = GetParam().inputs;
  const MoeProblem problem_ = make_problem(inputs_.shape, GetParam().options.tiling, GetParam().options.num_ranks,
                                           inputs_.routing, GetParam().options.placement);
};

TEST_P(MoeCase, EveryOrderPassesTheCheck) {
  for (const auto& order : orders_of(problem_.counts(0))) {
    const auto faults = check(problem_.schedule(order));
    ASSERT_TRUE(faults.empty()) << to_string(order) << "\n" << faults.front().text;
  }
}

TEST_P(MoeCase, GivesTheBitsOfOneRankInEveryOrder) {
  const auto expected = alone(GetParam());
  expect_reference(inputs_, expected);
  auto options = GetParam().options;
  // All orders where a run is short; a share of them where experts are many or threads are slow.
  const auto orders = orders_of(problem_.counts(0));
  const std::size_t stride = (inputs_.shape.num_experts > 100 ? 100 : 1) * (kSlow ? 7 : 1);
  for (std::size_t i = 0; i < orders.size(); i += stride) {
    options.order = orders[i];
    options.host.claim = i % 2 == 0 ? Claim::counter : Claim::fixed;
    options.host.workers_per_rank = 1 + static_cast<int>(i % 3);
    const auto result = run_on_host(inputs_, options);
    ASSERT_EQ(result.output, expected) << to_string(orders[i]) << ", " << to_string(options.host.claim);
    expect_executed(inputs_, options, result);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Moe, MoeCase, testing::ValuesIn(layers()),
                         [](const auto& layer) { return layer.param.symptom; });

TEST(MoeCases, MaskedTokensAreExactlyZeroOthersAreNot) {
  const MoeShape shape{40, 24, 12, 3};
  auto routing = routing_of(shape, 20);
  std::fill_n(routing.expert.begin(), 5 * shape.topk, -1);
  const auto layer = layer_of("", shape, routing, 3);
  const auto output = run_on_host(layer.inputs, layer.options).output;
  EXPECT_TRUE(std::all_of(output.begin(), output.begin() + 5 * 40, [](float value) { return value == 0; }));
  EXPECT_TRUE(std::none_of(output.begin() + 5 * 40, output.end(), [](float value) { return value == 0; }));
}

// A shared expert is what it says: the layer without it, plus one more expert for every token.
TEST(MoeCases, ASharedExpertAddsItsOutputBehindTheRoutedOnes) {
  const MoeShape shape{40, 24, 4, 1, 1};
  const auto both = layer_of("", shape, routing_of(shape, 20), 3);
  auto only_shared = both;
  only_shared.inputs.routing = masked(both.inputs.routing, 1);
  auto only_routed = both;
  only_routed.inputs.shape.num_shared = 0;
  const auto without = [](const Tensor& tensor, std::int64_t count) {
    std::vector<float> buffer;
    return Tensor(tensor.view().part(0, count).floats(buffer), DType::fp32);
  };
  only_routed.inputs.gate_up = without(both.inputs.gate_up, 4 * 2 * 24 * 40);
  only_routed.inputs.down = without(both.inputs.down, 4 * 40 * 24);
  const auto run = [](const Layer& layer) { return run_on_host(layer.inputs, layer.options).output; };
  const auto sum = run(both), routed = run(only_routed), shared = run(only_shared);
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], routed[i] + shared[i]);
}

TEST(MoeCases, Bf16InputsAreTheFp32InputsRounded) {
  const MoeShape shape{40, 24, 12, 3};
  const auto narrow = layer_of("", shape, routing_of(shape, 20), 4, {}, DType::bf16);
  auto wide = narrow;
  for (auto* tensor : {&wide.inputs.hidden_states, &wide.inputs.gate_up, &wide.inputs.down}) {
    std::vector<float> buffer;
    *tensor = Tensor(tensor->view().floats(buffer), DType::fp32);
  }
  EXPECT_EQ(run_on_host(narrow.inputs, narrow.options).output, run_on_host(wide.inputs, wide.options).output);
  const auto exact = layer_of("", shape, routing_of(shape, 20), 4);
  EXPECT_NE(run_on_host(narrow.inputs, narrow.options).output, run_on_host(exact.inputs, exact.options).output);
}

TEST(MoeCases, ThreeHundredRandomLayersGiveTheBitsOfOneRank) {
  for (std::uint64_t seed = 0; seed < (kSlow ? 30 : 300); ++seed) {
    Dice dice(seed);
    MoeShape shape{dice.whole(1, 80), dice.whole(1, 60), dice.whole(1, 24), 1};
    shape.topk = dice.whole(1, std::min(shape.num_experts, 16));
    shape.num_shared = chance(dice, 0.3) ? dice.whole(1, 2) : 0;
    const int num_ranks = dice.whole(1, 8), num_tokens = dice.whole(0, 40);
    const auto names = list_routings();
    auto routing = make_routing(names[pick(dice, names.size())].name, num_tokens, shape.num_experts, shape.topk, seed);
    const double unused = chance(dice, 0.5) ? dice.between(0, 1) : 0;
    for (auto& expert : routing.expert) {
      if (chance(dice, unused)) expert = -1;
    }
    auto layer =
        layer_of("", shape, std::move(routing), num_ranks, random_placement(dice, shape, num_tokens, num_ranks),
                 chance(dice, 0.3) ? DType::bf16 : DType::fp32);
    auto& options = layer.options;
    options.tiling = {dice.whole(1, 32), dice.whole(1, 48), dice.whole(1, 48), dice.whole(1, 16), 0, dice.whole(1, 4)};
    options.order = random_order(seed);
    options.host.claim = chance(dice, 0.5) ? Claim::fixed : Claim::counter;
    options.host.workers_per_rank = dice.whole(1, 3);
    options.host.signals.faults.max_delay = Nanos{chance(dice, 0.2) ? 30e3 : 0.0};
    const auto expected = alone(layer);
    expect_reference(layer.inputs, expected);
    for (const auto ranks_are : {RanksAre::threads, RanksAre::processes}) {
      options.host.ranks_are = ranks_are;
      const auto result = run_on_host(layer.inputs, options);
      expect_executed(layer.inputs, options, result);
      ASSERT_EQ(result.output, expected) << "seed " << seed << ", " << num_ranks << " " << to_string(ranks_are) << ", "
                                         << to_string(options.order);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace xs::moe
