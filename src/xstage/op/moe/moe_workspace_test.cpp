#include "xstage/op/moe/moe_workspace.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "xstage/mem/run_ranks.hpp"
#include "xstage/op/moe/moe_test_support.hpp"

namespace xs::moe {
namespace {

TEST(MoeWorkspace, BytesAreKnownBeforeAnythingIsAllocated) {
  const MoeShape shape{96, 32, 10, 3, 1};
  const MoeTiling tiling{16, 16, 32, 8, 2};
  const MoeCapacity capacity{/*tokens*/ 12, /*rows*/ 100, /*local experts*/ 4};
  const std::size_t blocks = 4 + (100 - 4) / 16, flags = 2 * 3 + 3 * blocks;
  const auto lines = [](std::size_t bytes) { return (bytes + 127) / 128 * 128; };
  for (const auto dtype : {DType::fp32, DType::bf16}) {
    Layout signals;
    Signals::reserve(signals, static_cast<int>(flags), 3);
    const std::size_t expected = lines(3 * 10 * 4) + lines(blocks * 16 * 96 * size_of(dtype)) + lines(blocks * 16 * 8) +
                                 lines(2 * 16 * 32 * 4) + lines(12 * 4 * 96 * 4) + signals.total_bytes();
    EXPECT_EQ(workspace_bytes(shape, tiling, 3, capacity, dtype), expected);
    Layout layout;
    reserve_workspace(layout, shape, tiling, 3, capacity, dtype);
    EXPECT_EQ(World(layout, 3).layout().total_bytes(), expected);
  }
}

// The same tokens on twice the ranks: half as many experts and rows on each, in the worst case the same rows on one.
TEST(MoeWorkspace, CountsTheRanksOnce) {
  const MoeShape shape{128, 64, 256, 8};
  const auto bytes = [&](int num_ranks) {
    const auto capacity = worst_case(shape, contiguous_experts(256, num_ranks), num_ranks, 4096 / num_ranks);
    return workspace_bytes(shape, {}, num_ranks, capacity, DType::bf16);
  };
  EXPECT_LT(bytes(16), bytes(8));
  EXPECT_LT(bytes(32), bytes(16));
}

TEST(MoeWorkspace, MoreRowsThanCapacityIsAUsageErrorNotGarbage) {
  const auto inputs = inputs_of({32, 16, 8, 2}, 20, "all-to-one", 1);
  RunOptions options;
  options.num_ranks = 4;
  options.capacity_rows = 40;
  const auto expected = run_on_host(inputs, options).output;
  options.capacity_rows = 1000;
  const auto roomy = run_on_host(inputs, options);
  EXPECT_EQ(roomy.output, expected);
  EXPECT_EQ(roomy.workspace_bytes, workspace_bytes(inputs.shape, options.tiling, 4, {5, 1000, 2}, DType::fp32));
  options.capacity_rows = 39;
  expect_usage_error([&] { run_on_host(inputs, options); }, {"rank 0 receives 40 rows, there is room for 39"});
}

TEST(MoeWorkspace, ARankThatFindsTooLittleRoomStopsBeforeItWrites) {
  const auto inputs = inputs_of({32, 16, 8, 2}, 20, "all-to-one", 1);
  RunOptions options;
  options.num_ranks = 2;
  Layout layout;
  const auto workspace = reserve_workspace(layout, inputs.shape, options.tiling, 2, {10, 39, 4}, DType::fp32);
  const World world(layout, 2);
  std::vector<float> output(640);
  expect_usage_error(
      [&] {
        run_ranks(world, [&](Rank rank) {
          Signals signals(rank, workspace.signals, workspace.num_flags, {});
          run_rank(inputs, options, rank, workspace, signals, output);
        });
      },
      {"rank 0 receives 40 rows, there is room for 39"});
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto region : {workspace.rows, workspace.slots}) {
      for (const auto byte : world.rank(rank).local(region)) ASSERT_EQ(byte, std::byte{0});
    }
  }
}

TEST(MoeInputs, ValuesThatAreNotFiniteAreUsageErrorsThatNameThePlace) {
  const MoeShape shape{4, 3, 2, 1, 1};
  const auto inputs = inputs_of(shape, 5, "balanced", 1);
  const auto refused = [](const Inputs& changed, const std::vector<std::string>& words) {
    expect_usage_error([&] { run_on_host(changed, {}); }, words);
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto changed = inputs;
    changed.hidden_states.set(3 * 4 + 2, bad);
    refused(changed, {"hidden states", "token 3, element 2 is"});
    changed = inputs;
    changed.gate_up.set((2 * 1 + 1) * 12 + 2 * 4 + 3, bad);
    refused(changed, {"up of expert 1, row 2, column 3 is"});
    changed = inputs;
    changed.down.set(2 * 12 + 3 * 3 + 1, bad);
    refused(changed, {"down of shared expert 0, row 3, column 1 is"});
    changed = inputs;
    changed.routing.weight[4] = bad;
    refused(changed, {"token 4, slot 0", "weight"});
  }
  // What bf16 cannot hold becomes infinite when it is rounded.
  auto narrow = make_inputs(shape, inputs.routing, {}, 1, DType::bf16);
  narrow.hidden_states.set(0, std::numeric_limits<float>::max());
  refused(narrow, {"token 0, element 0 is inf"});
  auto changed = inputs;
  changed.routing.expert[2] = 2;
  refused(changed, {"token 2, slot 0: expert 2 is out of range"});
}

// Layer after layer through so many workspaces, as many of them at the same time.
std::vector<std::vector<float>> run_in_flight(std::span<const Inputs> layers, const RunOptions& options,
                                              std::size_t num_workspaces) {
  MoeCapacity capacity;
  for (const auto& inputs : layers) {
    const auto needed = capacity_of(make_problem(inputs.shape, options.tiling, options.num_ranks, inputs.routing));
    capacity = {std::max(capacity.tokens, needed.tokens), std::max(capacity.rows, needed.rows), needed.local_experts};
  }
  Layout layout;
  std::vector<Workspace> workspaces;
  for (std::size_t i = 0; i < num_workspaces; ++i) {
    workspaces.push_back(
        reserve_workspace(layout, layers[0].shape, options.tiling, options.num_ranks, capacity, layers[0].dtype()));
  }
  const World world(layout, options.num_ranks);
  std::vector<std::vector<float>> outputs;
  for (const auto& inputs : layers) {
    outputs.emplace_back(static_cast<std::size_t>(inputs.num_tokens() * inputs.shape.hidden));
  }
  run_ranks(world, [&](Rank rank) {
    std::vector<std::jthread> in_flight;
    for (std::size_t first = 0; first < num_workspaces; ++first) {
      in_flight.emplace_back([&, first] {
        Signals signals(rank, workspaces[first].signals, workspaces[first].num_flags, {});
        for (std::size_t i = first; i < layers.size(); i += num_workspaces) {
          const auto begin = split_begin(layers[i].num_tokens(), options.num_ranks, rank.rank());
          const auto end = split_begin(layers[i].num_tokens(), options.num_ranks, rank.rank() + 1);
          const auto hidden = layers[i].shape.hidden;
          run_rank(
              layers[i], options, rank, workspaces[first], signals,
              std::span(outputs[i])
                  .subspan(static_cast<std::size_t>(begin * hidden), static_cast<std::size_t>((end - begin) * hidden)));
          signals.close_epoch();
        }
      });
    }
  });
  return outputs;
}

TEST(MoeInFlight, LayersAtTheSameTimeDoNotClearEachOthersFlags) {
  const MoeShape shape{48, 32, 12, 3, 1};
  std::vector<Inputs> layers;
  std::vector<std::vector<float>> expected;
  RunOptions options;
  options.num_ranks = 4;
  options.order = {OrderKind::wave, 1};
  options.tiling = {8, 16, 16, 4};
  options.host.signals.faults.max_delay = Nanos{50e3};
  for (std::uint64_t seed = 0; seed < 7; ++seed) {
    layers.push_back(inputs_of(shape, 20 + static_cast<int>(seed), seed % 2 == 0 ? "zipf" : "all-to-one", seed));
    expected.push_back(run_on_host(layers.back(), options).output);
  }
  for (const std::size_t num_workspaces : {1, 2, 3}) {
    EXPECT_EQ(run_in_flight(layers, options, num_workspaces), expected) << num_workspaces << " workspaces";
  }
}

}  // namespace
}  // namespace xs::moe
