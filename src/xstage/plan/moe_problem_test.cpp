#include "xstage/plan/moe_problem.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

TEST(MoeProblem, RowsAreTheRoutingsSlotsAndEveryTokenOnceForSharedExperts) {
  for_random_problems([](const RandomProblem& random) {
    const auto& [what, routing, problem] = random;
    std::map<std::pair<int, int>, int> rows;
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      for (auto token = problem.token_begin(rank); token < problem.token_begin(rank + 1); ++token) {
        for (int slot = 0; slot < routing.topk; ++slot) ++rows[{rank, routing.expert_at(token, slot)}];
        for (int shared = 0; shared < problem.shape().num_shared; ++shared) {
          ++rows[{rank, problem.shape().num_experts + shared}];
        }
      }
    }
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      for (int expert = 0; expert < problem.shape().all_experts(); ++expert) {
        EXPECT_EQ(problem.rows_of(rank, expert), (rows[{rank, expert}])) << rank << ", " << expert;
      }
    }
  });
}

TEST(MoeProblem, OffsetsArePrefixSumsOverTheSourcesOfAHolder) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    for (int expert = 0; expert < problem.shape().all_experts(); ++expert) {
      std::map<int, std::int32_t> sum;  // by holder
      for (int source = 0; source < problem.num_ranks(); ++source) {
        auto& rows = sum[problem.holder(expert, source)];
        EXPECT_EQ(problem.row_offset(source, expert), rows);
        rows += problem.rows_of(source, expert);
      }
    }
  });
}

TEST(MoeProblem, BlocksTileTheRowsOfEveryLocalExpertInOrder) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    std::int32_t most = 0;
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      const Counts counts = problem.counts(rank);
      const auto local = problem.local_experts(rank);
      ASSERT_EQ(static_cast<std::size_t>(counts.num_groups), local.size());
      ASSERT_EQ(counts.num_blocks(), problem.num_blocks(rank));
      most = std::max(most, problem.num_blocks(rank));
      std::int32_t index = 0;
      std::int64_t received = 0;
      for (int group = 0; group < counts.num_groups; ++group) {
        const auto expert = local[static_cast<std::size_t>(group)];
        EXPECT_EQ(problem.first_block(rank, expert), index);
        EXPECT_EQ(counts.group_blocks[group], index);
        std::int32_t rows = 0;
        for (int source = 0; source < problem.num_ranks(); ++source) {
          if (problem.holder(expert, source) == rank) rows += problem.rows_of(source, expert);
        }
        received += rows;
        for (std::int32_t first = 0; first < rows; first += problem.tiling().block_rows, ++index) {
          const MoeBlock& block = problem.block(rank, index);
          EXPECT_EQ(block.expert, expert);
          EXPECT_EQ(block.first_row, first);
          EXPECT_EQ(block.num_rows, std::min(problem.tiling().block_rows, rows - first));
          EXPECT_EQ(group_of_block(counts, index), group);
        }
      }
      EXPECT_EQ(index, problem.num_blocks(rank));
      EXPECT_EQ(received, problem.rows_received(rank));
    }
    EXPECT_EQ(most, problem.max_blocks());
  });
}

TEST(MoeProblem, SegmentsPartitionTheirBlockAndTheRowsOfTheirSource) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    std::map<std::pair<int, int>, std::int32_t> taken;  // (source, expert): rows in segments so far
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      for (std::int32_t index = 0; index < problem.num_blocks(rank); ++index) {
        const auto& block = problem.block(rank, index);
        std::int32_t row = 0;
        int last_source = -1;
        for (const auto& segment : problem.segments(block)) {
          EXPECT_GT(segment.source, last_source);
          EXPECT_EQ(segment.first, row);
          EXPECT_GT(segment.count, 0);
          auto& rows = taken[{segment.source, block.expert}];
          EXPECT_EQ(segment.first_of_source, rows);
          rows += segment.count;
          row += segment.count;
          last_source = segment.source;
        }
        EXPECT_EQ(row, block.num_rows);
      }
    }
    for (int source = 0; source < problem.num_ranks(); ++source) {
      for (int expert = 0; expert < problem.shape().all_experts(); ++expert) {
        EXPECT_EQ((taken[{source, expert}]), problem.rows_of(source, expert));
      }
    }
  });
}

// (token, slot) → (block of its expert, row of the block), found through the segments.
std::map<std::pair<std::int64_t, int>, std::pair<int, int>> places(const Routing& routing, const MoeProblem& problem) {
  std::map<std::pair<std::int64_t, int>, std::pair<int, int>> found;
  for (int source = 0; source < problem.num_ranks(); ++source) {
    std::map<int, int> seen;  // rows of this source, by expert
    for (auto token = problem.token_begin(source); token < problem.token_begin(source + 1); ++token) {
      for (int slot = 0; slot < routing.topk; ++slot) {
        const auto expert = routing.expert_at(token, slot);
        if (expert < 0) continue;
        const int of_source = seen[expert]++;
        const int holder = problem.holder(expert, source);
        const auto begin = problem.first_block(holder, expert);
        for (auto block = begin; block < problem.num_blocks(holder); ++block) {
          if (problem.block(holder, block).expert != expert) break;
          for (const auto& segment : problem.segments(problem.block(holder, block))) {
            const int in_segment = of_source - segment.first_of_source;
            if (segment.source != source || in_segment < 0 || in_segment >= segment.count) continue;
            EXPECT_TRUE(found.insert({{token, slot}, {block - begin, segment.first + in_segment}}).second);
          }
        }
      }
    }
  }
  return found;
}

TEST(MoeProblem, PlaceOfARowInItsBlockDoesNotDependOnTheNumberOfRanks) {
  for_random_problems([](const RandomProblem& random) {
    const auto& routing = random.routing;
    const MoePlacement uneven{random.problem.placement().tokens, {}};
    const auto problem =
        make_problem(random.problem.shape(), random.problem.tiling(), random.problem.num_ranks(), routing, uneven);
    const auto alone = make_problem(problem.shape(), problem.tiling(), 1, routing);
    const auto found = places(routing, problem);
    EXPECT_EQ(found, places(routing, alone));
    EXPECT_EQ(found.size(),
              static_cast<std::size_t>(std::ranges::count_if(routing.expert, [](auto expert) { return expert >= 0; })));
  });
}

TEST(MoeProblem, CountsCoverTheColumnsAndTheTokensOfTheRank) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    const auto& tiling = problem.tiling();
    const auto covers = [](std::int64_t tiles, std::int64_t width, std::int64_t amount) {
      return tiles * width >= amount && (tiles - 1) * width < amount;
    };
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      const Counts counts = problem.counts(rank);
      EXPECT_TRUE(covers(counts.linear1_tiles, tiling.linear1_cols, problem.shape().intermediate));
      EXPECT_TRUE(covers(counts.linear2_tiles, tiling.linear2_cols, problem.shape().hidden));
      EXPECT_TRUE(covers(counts.num_reduce, tiling.reduce_tokens, problem.tokens_of(rank)));
      EXPECT_EQ(counts.rank, rank);
      EXPECT_EQ(counts.num_ranks, problem.num_ranks());
      EXPECT_EQ(counts.num_experts, problem.shape().all_experts());
    }
  });
}

TEST(MoeProblem, FlagsOfDifferentNamesAreDifferentAndContiguous) {
  const MoeProblem problem({8, 8, 2, 1}, {4, 8, 8, 1}, 2, 20, {9, 0, 5, 6});
  const auto flags = problem.flags();
  ASSERT_EQ(flags.size(), 4u);
  EXPECT_EQ(problem.max_blocks(), 4);
  for (std::size_t i = 1; i < flags.size(); ++i) EXPECT_EQ(flags[i].first, flags[i - 1].first + flags[i - 1].count);
  EXPECT_EQ(flag_name(flags, MoeProblem::counted(1)), "counted[1]");
  EXPECT_EQ(flag_name(flags, problem.combined(1)), "combined[1]");
  EXPECT_EQ(flag_name(flags, problem.arrived(3)), "arrived[3]");
  EXPECT_EQ(flag_name(flags, problem.activated(3)), "activated[3]");
  EXPECT_EQ(flag_name(flags, problem.activated(4)), "flag 12");
  EXPECT_EQ(flag_name(flags, -1), "flag -1");
  // Slots are released where they are fewer than blocks.
  EXPECT_EQ(problem.with_ring(4).flags().size(), 4u);
  const auto in_ring = problem.with_ring(3).flags();
  ASSERT_EQ(in_ring.size(), 5u);
  EXPECT_EQ(in_ring[4].first, in_ring[3].first + in_ring[3].count);
  EXPECT_EQ(flag_name(in_ring, problem.released(3)), "released[3]");
}

TEST(MoeProblem, ARingHoldsAtMostAllBlocks) {
  const MoeProblem problem({8, 8, 2, 1}, {4, 8, 8, 1}, 2, 20, {9, 0, 5, 6});
  EXPECT_EQ(problem.activation_slots(), 4);
  EXPECT_EQ(problem.with_ring(3).activation_slots(), 3);
  EXPECT_EQ(problem.with_ring(5).activation_slots(), 4);
  EXPECT_EQ(problem.with_ring(3).tiling().ring_blocks, 3);
  EXPECT_EQ(problem.with_ring(3).with_ring(0).tiling(), problem.tiling());
}

TEST(MoeProblem, BlocksTakeSlotsInTheOrderOfTheirFirstLinear1) {
  using List = std::vector<std::int32_t>;
  const auto uses = activation_uses({{{TaskKind::linear2, 4, 0},
                                      {TaskKind::linear1, 3, 1},
                                      {TaskKind::linear1, 0, 0},
                                      {TaskKind::linear1, 3, 0},
                                      {TaskKind::linear1, 9, 0},
                                      {TaskKind::linear1, -1, 0},
                                      {TaskKind::linear1, 2, 0}}},
                                    5);
  EXPECT_EQ(uses.block, (List{3, 0, 2, 1, 4}));
  EXPECT_EQ(uses.use, (List{1, 3, 2, 0, 4}));
}

TEST(MoeProblem, ImpossibleArgumentsAreUsageErrors) {
  const auto make = [](const MoeShape& shape, const MoeTiling& tiling, int num_ranks, std::int64_t num_tokens,
                       const std::vector<std::int32_t>& rows) {
    return [=] { MoeProblem(shape, tiling, num_ranks, num_tokens, rows); };
  };
  const MoeShape shape{8, 8, 2, 1};
  const MoeTiling tiling;
  MoeProblem(shape, tiling, 2, 3, {1, 1, 1, 0});
  expect_usage_error(make({0, 8, 2, 1}, tiling, 2, 3, {1, 1, 1, 0}), {"MoE shape"});
  expect_usage_error(make({8, 0, 2, 1}, tiling, 2, 3, {1, 1, 1, 0}), {"MoE shape"});
  expect_usage_error(make({8, 8, 0, 1}, tiling, 2, 3, {}), {"MoE shape"});
  expect_usage_error(make({8, 8, 2, 0}, tiling, 2, 3, {1, 1, 1, 0}), {"MoE shape"});
  for (int extent = 0; extent < 4; ++extent) {
    MoeTiling wrong;
    (extent == 0   ? wrong.block_rows
     : extent == 1 ? wrong.linear1_cols
     : extent == 2 ? wrong.linear2_cols
                   : wrong.reduce_tokens) = 0;
    expect_usage_error(make(shape, wrong, 2, 3, {1, 1, 1, 0}), {"MoE tiling"});
  }
  MoeTiling no_ring;
  no_ring.ring_blocks = -1;
  expect_usage_error(make({8, 8, 2, 1, -1}, tiling, 2, 3, {1, 1, 1, 0}), {"MoE shape", "found -1"});
  expect_usage_error(make(shape, no_ring, 2, 3, {1, 1, 1, 0}), {"MoE tiling", "ring blocks", "found -1"});
  expect_usage_error(make(shape, tiling, 0, 3, {}), {"found 0 and 3"});
  expect_usage_error(make(shape, tiling, 2, -1, {1, 1, 1, 0}), {"found 2 and -1"});
  expect_usage_error(make(shape, tiling, 2, 3, {1, 1, 1}), {"4 expected (2 ranks x 2 experts), 3 found"});
  expect_usage_error(make(shape, tiling, 2, 3, {1, 1, -1, 0}), {"must not be negative"});
  expect_usage_error(make(shape, tiling, 2, 3, {2147483647, 0, 1, 0}), {"their sum 2147483648 is more than 32 bits"});
  expect_usage_error([&] { make_problem(shape, tiling, 2, make_routing("zipf", 3, 2, 2, 1)); },
                     {"top-k 1 expected, 2 found"});
}

// Waves of a rank's experts on 148 SMs, as DeepGEMM's rule gives them with its row blocks, for 128, 512, 2048 and 8192
// tokens of each of 8 ranks.
TEST(MoeProblem, DefaultWavesOfPublishedModels) {
  struct Waves {
    const char* model;
    std::array<int, 4> num_waves;
  };
  const Waves table[] = {{"deepseek-v4-flash", {2, 2, 4, 16}}, {"deepseek-v4-pro", {6, 6, 12, 24}},
                         {"deepseek-v3", {2, 2, 8, 32}},       {"kimi-k2", {4, 4, 8, 24}},
                         {"qwen3-235b-a22b", {1, 2, 4, 16}},   {"qwen3-30b-a3b", {1, 1, 2, 8}},
                         {"glm-4.5", {1, 2, 5, 20}},           {"qwen3.5-397b-a17b", {2, 2, 4, 16}},
                         {"kimi-k3", {16, 16, 28, 112}},       {"mixtral-8x7b", {1, 1, 1, 1}}};
  constexpr std::pair<double, int> kBlockRows[] = {{8.5, 16},   {16.5, 32}, {32.5, 64}, {64.5, 96},
                                                   {96.5, 128}, {1e9, 192}};  // up to so many rows an expert
  for (const auto& [model, num_waves] : table) {
    const auto shape = find_moe_model(model).shape;
    for (std::size_t i = 0; i < num_waves.size(); ++i) {
      const std::int64_t slots = (128 << (2 * i)) * shape.topk;  // of one rank
      const double mean_rows = 8.0 * static_cast<double>(slots) / shape.num_experts;
      const auto* const limit = std::ranges::find_if(kBlockRows, [&](const auto& at) { return mean_rows <= at.first; });
      std::vector<std::int32_t> rows;
      for (int source = 0; source < 8; ++source) {
        for (int expert = 0; expert < shape.num_experts; ++expert) {
          rows.push_back(static_cast<std::int32_t>(split_begin(slots, shape.num_experts, expert + 1) -
                                                   split_begin(slots, shape.num_experts, expert)));
        }
      }
      const MoeProblem problem(shape, {limit->second, 64, 128, 32}, 8, 8 * slots / shape.topk, rows);
      EXPECT_EQ(ceil_div(shape.num_experts / 8, default_experts_per_wave(problem, 148)), num_waves[i])
          << model << ", " << slots / shape.topk << " tokens";
    }
  }
}

// Every SM has two Linear-1 tiles unless all local experts have less, and no more than twice the fewest such experts
// are in a wave. No permitted wave would leave a fuller last one.
TEST(MoeProblem, DefaultWaveFillsTheSmsTwiceAndItsLastWave) {
  constexpr int kLocal = 16;
  for (const int num_tokens : {16, 100, 4000, 40000}) {
    for (const int num_sms : {1, 16, 132, 1000}) {
      const auto problem = make_problem({1024, 512, 64, 4}, {}, 4, make_routing("balanced", num_tokens, 64, 4, 1));
      const int experts = default_experts_per_wave(problem, num_sms);
      const int tiles =
          ceil_div(ceil_div(num_tokens * 4, 64), problem.tiling().block_rows) * problem.counts(0).linear1_tiles;
      const int fewest = std::min(ceil_div(2 * num_sms, tiles), kLocal);
      SCOPED_TRACE(fmt::format("{} tokens, {} SMs: {} experts of {} tiles", num_tokens, num_sms, experts, tiles));
      EXPECT_GE(experts, fewest);
      EXPECT_LE(experts, tiles >= num_sms ? fewest : std::min(2 * fewest, kLocal));
      const auto last_wave = [](int wave) { return 1.0 * (kLocal % wave == 0 ? wave : kLocal % wave) / wave; };
      for (int wave = fewest; wave <= std::min(2 * fewest, kLocal) && tiles < num_sms; ++wave) {
        EXPECT_GE(last_wave(experts), last_wave(wave)) << wave;
      }
    }
  }
  const auto few = make_problem({1024, 512, 64, 4}, {}, 4, make_routing("balanced", 15, 64, 4, 1));
  EXPECT_EQ(default_experts_per_wave(few, 1), kLocal) << "less than a row for each expert";
}

TEST(MoeProblem, RhoIsTheLinksTimeOverTheProductsTimeOfAllLinear2Tiles) {
  const MoeShape shape{512, 256, 32, 4};
  const int num_ranks = 8;
  // 8 x 32 tokens x top-4 = 32 rows an expert, one row of every source and block of 32: no padding.
  const auto problem = make_problem(shape, {32, 64, 128, 32}, num_ranks, make_routing("balanced", 256, 32, 4, 1));
  const MoeBytes bytes;
  const auto schedule = problem.schedule(Order{}, bytes);
  double flops = 0, remote = 0;
  for (std::size_t claim = 0; claim < schedule.ranks[0].tasks.size(); ++claim) {
    if (schedule.ranks[0].tasks[claim].kind != TaskKind::linear2) continue;
    flops += schedule.ranks[0].work[claim].flops;
    for (const auto& send : schedule.ranks[0].sends[claim])
      remote += send.rank == 0 ? 0 : static_cast<double>(send.bytes);
  }
  const double flops_per_ns = 8e5, drain = 376;
  EXPECT_DOUBLE_EQ(rho(shape, num_ranks, bytes.combine, flops_per_ns, drain), remote / drain / (flops / flops_per_ns));
  EXPECT_EQ(rho(shape, 1, 2, flops_per_ns, drain), 0);
}

}  // namespace
}  // namespace xs
