#include "xstage/op/moe/moe.hpp"

#include <gtest/gtest.h>

#include "xstage/core/error.hpp"
#include "xstage/op/moe/moe_test_support.hpp"

namespace xs::moe {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

RunOptions options_of(int num_ranks, const Order& order) {
  RunOptions options;
  options.num_ranks = num_ranks;
  options.order = order;
  return options;
}

// Every kind of order, both rotations.
constexpr Order kOrders[] = {{OrderKind::serial},
                             {OrderKind::wave, 3, Rotation::own_last},
                             {OrderKind::waves, 3},
                             {OrderKind::alternate, 1},
                             {OrderKind::alternate, 4, Rotation::own_last},
                             {OrderKind::lag, 1},
                             {OrderKind::lag, 3, Rotation::own_first}};

TEST(SwiGlu, ClampsTheGateFromAboveAndUpOnBothSides) {
  const float none = std::numeric_limits<float>::infinity();
  EXPECT_FLOAT_EQ(swiglu(3, 5, 2), swiglu(2, 2, none));
  EXPECT_FLOAT_EQ(swiglu(-3, -5, 2), swiglu(-3, -2, none));
  EXPECT_FLOAT_EQ(swiglu(1, 1, 2), swiglu(1, 1, none));
  EXPECT_FLOAT_EQ(swiglu(1, 7, none), 7 / (1 + std::exp(-1.0f)));
}

TEST(Moe, ReferenceOfOneTokenByHand) {
  const MoeShape shape{2, 1, 2, 1};
  Routing routing{1, 1, {1}, {0.5f}};
  Inputs inputs = make_inputs(shape, routing, {1.0f, 2.0f}, 1);
  inputs.gate_up = {0, 0, 0, 0, /*gate of expert 1*/ 3, -1, /*up*/ 0.5f, 0.25f};
  inputs.down = {0, 0, /*expert 1*/ 2, -4};
  const double gate = 1, up = 1, activation = gate / (1 + std::exp(-gate)) * up;
  const auto out = reference(inputs, 0).value;
  EXPECT_DOUBLE_EQ(out[0], 0.5 * 2 * activation);
  EXPECT_DOUBLE_EQ(out[1], 0.5 * -4 * activation);
}

// Ranks, orders, claims and workers change who does what and when, never a bit of the result.
TEST(Moe, BitwiseEqualOnAnyNumberOfRanksInEveryOrder) {
  const MoeShape shape{96, 80, 24, 3};
  for (const std::string routing : {"balanced", "zipf", "stress", "all-to-one"}) {
    const auto inputs = inputs_of(shape, 120, routing);
    RunOptions options = options_of(1, {OrderKind::serial});
    options.tiling = {16, 16, 32, 8};
    const auto first = run_on_host(inputs, options).output;
    const auto verification = verify(inputs, first);
    EXPECT_EQ(verification.num_tokens, 120);
    EXPECT_LE(verification.max_error, verification.tolerance) << routing;
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const auto& order : kOrders) {
        for (const auto claim : {Claim::fixed, Claim::counter}) {
          options.num_ranks = ranks;
          options.order = order;
          options.host.claim = claim;
          options.host.workers_per_rank = claim == Claim::counter ? 3 : 2;
          const auto result = run_on_host(inputs, options);
          ASSERT_EQ(result.output, first) << routing << ", " << ranks << " ranks, " << to_string(order);
          expect_executed(inputs, options, result);
        }
      }
    }
  }
}

TEST(Moe, DelaysAtEveryTaskChangeNothing) {
  const auto inputs = inputs_of({64, 48, 12, 2}, 48, "zipf");
  RunOptions options = options_of(4, {OrderKind::wave, 1});
  options.tiling = {8, 16, 16, 4};
  const auto expected = run_on_host(inputs, options).output;
  for (std::uint64_t seed = 0; seed < (kSlow ? 4 : 8); ++seed) {
    options.host.signals.faults.seed = seed;
    options.host.signals.faults.max_delay = Nanos{300e3};
    options.host.workers_per_rank = 1 + static_cast<int>(seed % 3);
    EXPECT_EQ(run_on_host(inputs, options).output, expected) << "seed " << seed;
  }
}

// The same world serves layer after layer; flags of an old layer must not satisfy a new one.
TEST(Moe, ManyLayersThroughOneWorldAlsoWhenTheEpochWraps) {
  const auto inputs = inputs_of({32, 32, 8, 2}, 40, "moderate");
  RunOptions options = options_of(4, {OrderKind::wave, 1});
  options.tiling = {8, 16, 16, 4};
  const auto expected = run_on_host(inputs, options).output;
  options.host.repeats = 20;
  options.host.signals.first_epoch = 0xfffffff8u;
  EXPECT_EQ(run_on_host(inputs, options).output, expected);
}

TEST(Moe, ATimelineHasEveryTaskOnce) {
  const auto inputs = inputs_of({48, 32, 8, 2}, 32, "balanced");
  const auto options = options_of(2, {OrderKind::serial});
  const auto result = run_on_host(inputs, options);
  const auto computed =
      std::ranges::count_if(result.timeline.spans, [](const Span& span) { return span.kind == SpanKind::compute; });
  EXPECT_EQ(static_cast<std::size_t>(computed), result.executed[0].size() + result.executed[1].size());
}

// The verification itself must be able to fail.
TEST(Moe, VerifyNoticesOneWrongValueAndNaN) {
  const auto inputs = inputs_of({48, 32, 8, 2}, 32, "balanced");
  const auto right = run_on_host(inputs, options_of(2, {OrderKind::serial})).output;
  ASSERT_TRUE(verify(inputs, right).passed());
  for (const float wrong : {0.0f, std::nanf("")}) {
    auto output = right;
    output[777] = wrong;
    EXPECT_FALSE(verify(inputs, output).passed()) << wrong;
  }
}

TEST(Moe, AnOrderThatFailsTheCheckNeverRuns) {
  const auto inputs = inputs_of({48, 32, 8, 2}, 32, "balanced");
  RunOptions options = options_of(2, {OrderKind::serial});
  const auto problem = make_problem(inputs.shape, options.tiling, 2, inputs.routing);
  for (int rank = 0; rank < 2; ++rank) options.tasks.push_back(expand(options.order, problem.counts(rank)));
  EXPECT_EQ(run_on_host(inputs, options).output, run_on_host(inputs, options_of(2, {OrderKind::serial})).output);
  options.tasks[1].pop_back();
  try {
    run_on_host(inputs, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("tile missing: rank 1: reduce"), std::string::npos) << error.what();
  }
}

TEST(Moe, MoreMemoryThanTheMachineHasIsSaidBefore) {
  const MoeShape shape{1 << 20, 1 << 20, 1024, 2};
  try {
    inputs_of(shape, 4, "balanced");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(error.what()).find("GiB"), std::string::npos);
  }
}

}  // namespace
}  // namespace xs::moe
