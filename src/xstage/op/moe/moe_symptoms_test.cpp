#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "xstage/mem/run_ranks.hpp"
#include "xstage/op/moe/moe_test_support.hpp"
#include "xstage/plan/check.hpp"

// What users of such layers reported elsewhere, as tests that name the symptom; docs/protocol.md has the whole list.

namespace xs::moe {
namespace {

RunOptions options_of(int num_ranks, const Order& order = {OrderKind::serial}) {
  RunOptions options;
  options.num_ranks = num_ranks;
  options.order = order;
  options.tiling = {8, 16, 16, 4};
  return options;
}

// The smallest ring that the checker accepts for an order.
int tightest_ring(const Inputs& inputs, const RunOptions& options) {
  auto tiling = options.tiling;
  for (tiling.ring_blocks = 1;; ++tiling.ring_blocks) {
    const auto problem = make_problem(inputs.shape, tiling, options.num_ranks, inputs.routing, options.placement);
    if (check(problem.schedule(options.order)).empty()) return tiling.ring_blocks;
  }
}

// A producer at the end of its ring and a consumer that is late: each waits for the other, and nobody moves.
TEST(MoeSymptoms, ATightRingAndASlowConsumerDoNotWedge) {
  const auto inputs = inputs_of({32, 24, 12, 3}, 64, "zipf");
  for (const Order order : {Order{OrderKind::wave, 1}, Order{OrderKind::lag, 2}, Order{OrderKind::alternate, 3}}) {
    auto options = options_of(4, order);
    const auto expected = run_on_host(inputs, options).output;
    options.tiling.ring_blocks = tightest_ring(inputs, options);
    options.host.workers_per_rank = 3;
    for (int slow = 0; slow < 4; ++slow) {
      options.host.signals.faults.late.assign(4, Nanos{0});
      options.host.signals.faults.late[static_cast<std::size_t>(slow)] = Nanos{20e6};
      options.host.signals.faults.max_delay = Nanos{20e3};
      EXPECT_EQ(run_on_host(inputs, options).output, expected) << to_string(order) << ", rank " << slow;
    }
  }
}

// A ring's slot that is written again before its reader is done gives wrong rows, and only where few experts are hot.
TEST(MoeSymptoms, AllTokensToFewExpertsReuseARingWithoutAWrongRow) {
  const auto inputs = inputs_of({32, 24, 16, 2}, 120, "all-to-one");
  auto options = options_of(4, {OrderKind::lag, 1});
  const auto expected = run_on_host(inputs, options).output;
  options.tiling.ring_blocks = tightest_ring(inputs, options);
  ASSERT_LT(options.tiling.ring_blocks, 20);
  options.host.workers_per_rank = 4;
  options.host.signals.faults.max_delay = Nanos{50e3};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    options.host.signals.faults.seed = seed;
    EXPECT_EQ(run_on_host(inputs, options).output, expected);
  }
}

TEST(MoeSymptoms, ManyExpertsPerRankGiveTheSameBitsAHundredTimes) {
  for (const int experts_per_rank : {1, 3, 16}) {
    const auto inputs = inputs_of({24, 16, 2 * experts_per_rank, std::min(2 * experts_per_rank, 4)}, 30, "moderate");
    auto options = options_of(2, {OrderKind::wave, 2});
    options.host.workers_per_rank = 3;
    const auto expected = run_on_host(inputs, options_of(1)).output;
    for (int run = 0; run < 100 / kSlower; ++run) {
      ASSERT_EQ(run_on_host(inputs, options).output, expected) << experts_per_rank << " experts per rank, run " << run;
    }
  }
}

// A count that is right everywhere but at one number of tokens: around row blocks and chunks of the reduction.
TEST(MoeSymptoms, NoNumberOfTokensTimesOut) {
  const MoeShape shape{16, 16, 4, 2};
  for (int num_tokens = 0; num_tokens <= 72; num_tokens += 1 + (kSlower > 1 ? 6 : 0)) {
    const auto inputs = inputs_of(shape, num_tokens, "balanced");
    ASSERT_EQ(run_on_host(inputs, options_of(3, {OrderKind::lag, 1})).output, run_on_host(inputs, options_of(1)).output)
        << num_tokens << " tokens";
  }
}

// One rank's result moves in the last bits when other ranks' samples change.
TEST(MoeSymptoms, TokensOfOtherRanksDoNotChangeMine) {
  const MoeShape shape{40, 24, 8, 3};
  const auto routing = make_routing("zipf", 40, shape.num_experts, shape.topk, 2);
  const auto whole = make_inputs(shape, routing, {}, 2);
  const auto options = options_of(4, {OrderKind::wave, 2});
  const auto output = run_on_host(whole, options).output;
  auto fewer = routing;
  std::fill(fewer.expert.begin() + 10 * shape.topk, fewer.expert.end(), -1);  // ranks 1 to 3 send nothing
  const auto alone = run_on_host(make_inputs(shape, fewer, {}, 2), options).output;
  EXPECT_TRUE(std::equal(output.begin(), output.begin() + 10 * shape.hidden, alone.begin()));
}

// Rows that a rank reads before they came, or never got, are zeros by luck in fresh memory and stale rows later.
TEST(MoeSymptoms, GarbageInEveryBufferIsNeverRead) {
  const auto inputs = inputs_of({32, 24, 12, 3, 1}, 50, "zipf");
  const auto options = options_of(4, {OrderKind::wave, 1});
  const auto problem = make_problem(inputs.shape, options.tiling, 4, inputs.routing);
  Layout layout;
  const auto workspace =
      reserve_workspace(layout, inputs.shape, options.tiling, 4, capacity_of(problem), inputs.dtype());
  const auto outputs = layout.add("output", 13 * 32 * sizeof(float));
  const World world(layout, 4);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t region = 0; region < layout.num_regions(); ++region) {
      const auto bytes = world.rank(rank).local({region});
      if (region != workspace.signals.index) std::memset(bytes.data(), 0xff, bytes.size());  // NaNs, and wild numbers
    }
  }
  run_ranks(world, [&](Rank rank) {
    Signals signals(rank, workspace.signals, workspace.num_flags, {});
    run_rank(inputs, options, rank, workspace, signals, rank.local_as<float>(outputs));
    signals.close_epoch();
  });
  const auto expected = run_on_host(inputs, options).output;
  for (int rank = 0; rank < 4; ++rank) {
    const auto begin = problem.token_begin(rank) * 32, end = problem.token_begin(rank + 1) * 32;
    const auto output = world.rank(rank).local_as<float>(outputs);
    EXPECT_TRUE(std::equal(expected.begin() + begin, expected.begin() + end, output.begin())) << "rank " << rank;
  }
}

}  // namespace
}  // namespace xs::moe
