#include "xstage/plan/order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

// Calls body(problem, rank, counts) for every rank of every random problem.
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

std::vector<Order> orders_of(const Counts& counts) {
  std::vector<Order> orders{{OrderKind::serial}};
  for (int experts = 1; experts <= counts.num_groups + 1; ++experts) orders.push_back({OrderKind::wave, experts});
  return orders;
}

using TaskKey = std::tuple<TaskKind, std::int32_t, std::int32_t>;

std::map<TaskKey, std::int64_t> claims_of(const std::vector<Task>& tasks) {
  std::map<TaskKey, std::int64_t> claims;
  for (const auto& task : tasks) {
    const auto claim = static_cast<std::int64_t>(claims.size());
    EXPECT_TRUE(claims.insert({{task.kind, task.block, task.tile}, claim}).second) << "twice";
  }
  return claims;
}

TEST(Order, HoldsEveryDispatchLinearAndReduceTileExactlyOnce) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    std::set<TaskKey> wanted;
    for (int expert = 0; expert < problem.shape().num_experts; ++expert) wanted.insert({TaskKind::dispatch, expert, 0});
    for (int block = 0; block < problem.num_blocks(rank); ++block) {
      for (int tile = 0; tile < counts.linear1_tiles; ++tile) wanted.insert({TaskKind::linear1, block, tile});
      for (int tile = 0; tile < counts.linear2_tiles; ++tile) wanted.insert({TaskKind::linear2, block, tile});
    }
    const auto tokens = problem.token_begin(rank + 1) - problem.token_begin(rank);
    for (int chunk = 0; chunk * problem.tiling().reduce_tokens < tokens; ++chunk) {
      wanted.insert({TaskKind::reduce, chunk, 0});
    }
    for (const auto& order : orders_of(counts)) {
      SCOPED_TRACE(to_string(order));
      const auto claims = claims_of(expand(order, counts));
      std::set<TaskKey> found;
      for (const auto& [task, claim] : claims) found.insert(task);
      EXPECT_EQ(found, wanted);
    }
  });
}

TEST(Order, FrameIsDispatchThenLinearThenReduce) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    for (const auto& order : orders_of(counts)) {
      const auto tasks = expand(order, counts);
      const auto stage = [](const Task& task) {
        return task.kind == TaskKind::dispatch ? 0 : task.kind == TaskKind::reduce ? 2 : 1;
      };
      EXPECT_TRUE(std::ranges::is_sorted(tasks, {}, stage)) << to_string(order);
      EXPECT_EQ(std::ranges::count(tasks, TaskKind::dispatch, &Task::kind), counts.num_experts);
    }
  });
}

TEST(Order, SerialPutsAllLinear1BeforeAllLinear2) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    EXPECT_TRUE(std::ranges::is_sorted(expand({OrderKind::serial}, counts), {}, &Task::kind));
  });
}

TEST(Order, WaveOfAllLocalExpertsEqualsSerial) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    const auto serial = expand({OrderKind::serial}, counts);
    const auto groups = std::max(counts.num_groups, 1);
    for (const int experts : {groups, groups + 1, 1000, 2147483647}) {
      EXPECT_EQ(expand({OrderKind::wave, experts}, counts), serial) << experts;
    }
  });
}

TEST(Order, WavesAreSerialWithinConsecutiveGroupsOfExperts) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    for (int experts = 1; experts <= counts.num_groups; ++experts) {
      std::vector<Task> linear;
      for (int begin = 0; begin < counts.num_groups; begin += experts) {
        const auto in_wave = [&](std::int32_t block) {
          const auto local = problem.block(rank, block).expert - problem.expert_begin(rank);
          return local >= begin && local < begin + experts;
        };
        for (const auto& task : expand({OrderKind::serial}, counts)) {
          const bool is_linear = task.kind == TaskKind::linear1 || task.kind == TaskKind::linear2;
          if (is_linear && in_wave(task.block)) linear.push_back(task);
        }
      }
      auto tasks = expand({OrderKind::wave, experts}, counts);
      std::erase_if(tasks,
                    [](const Task& task) { return task.kind == TaskKind::dispatch || task.kind == TaskKind::reduce; });
      EXPECT_EQ(tasks, linear) << experts << " experts per wave";
    }
  });
}

TEST(Order, EveryLinear2StandsBehindAllLinear1OfItsBlock) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    for (const auto& order : orders_of(counts)) {
      std::map<std::int32_t, int> done;
      for (const auto& task : expand(order, counts)) {
        if (task.kind == TaskKind::linear1) ++done[task.block];
        if (task.kind == TaskKind::linear2) {
          ASSERT_EQ(done[task.block], counts.linear1_tiles) << to_string(order) << ", block " << task.block;
        }
      }
    }
  });
}

TEST(Order, DispatchVisitsRanksInTurnBeginningWithTheNext) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    const auto experts = counts.num_experts, ranks = counts.num_ranks;
    for (std::int32_t index = 0; index < experts; ++index) {
      const auto expert = dispatch_expert(counts, index);
      const int holder = problem.rank_of_expert(expert);
      // The index-th visit of a rank is for its index-th expert, so first experts leave first everywhere.
      EXPECT_EQ(expert - problem.expert_begin(holder), index / ranks);
      if (index < experts / ranks * ranks) {
        EXPECT_EQ(holder, (rank + 1 + index) % ranks);
      }
    }
  });
}

// While every rank has an expert to visit, no two ranks send to the same one at the same step.
TEST(Order, DispatchOfAllRanksAtOneStepGoesToDifferentRanks) {
  for_random_problems([](const RandomProblem& random) {
    const auto& problem = random.problem;
    const int ranks = problem.num_ranks();
    for (int index = 0; index < problem.shape().num_experts / ranks * ranks; ++index) {
      std::set<int> holders;
      for (int rank = 0; rank < ranks; ++rank) {
        holders.insert(problem.rank_of_expert(dispatch_expert(problem.counts(rank), index)));
      }
      ASSERT_EQ(holders.size(), static_cast<std::size_t>(ranks)) << "step " << index;
    }
  });
}

constexpr std::int32_t kGroupBlocks[] = {0, 2, 2, 3};  // the second expert has no rows
constexpr Counts kCounts{0, 2, 6, 3, 2, 1, 1, kGroupBlocks};
constexpr Order kWave{OrderKind::wave, 1};
static_assert(kCounts.num_tasks() == 6 + 3 * (2 + 1) + 1);
static_assert(task_at(kWave, kCounts, 0) == Task{TaskKind::dispatch, 3, 0});
static_assert(task_at(kWave, kCounts, 9) == Task{TaskKind::linear1, 1, 1});
static_assert(task_at(kWave, kCounts, 10) == Task{TaskKind::linear2, 0, 0});
static_assert(task_at(kWave, kCounts, 12) == Task{TaskKind::linear1, 2, 0});
static_assert(task_at(kWave, kCounts, 15) == Task{TaskKind::reduce, 0, 0});

TEST(Order, ExpandIsTaskAtOfEveryClaim) {
  for (const auto& order : {Order{OrderKind::serial}, kWave, Order{OrderKind::wave, 2}}) {
    const auto tasks = expand(order, kCounts);
    ASSERT_EQ(tasks.size(), static_cast<std::size_t>(kCounts.num_tasks()));
    for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
      EXPECT_EQ(tasks[claim], task_at(order, kCounts, static_cast<std::int64_t>(claim)));
    }
  }
}

TEST(Order, SplitIsContiguousEvenAndComplete) {
  for (std::int64_t count = 0; count <= 40; ++count) {
    for (std::int64_t parts = 1; parts <= 12; ++parts) {
      EXPECT_EQ(split_begin(count, parts, 0), 0);
      EXPECT_EQ(split_begin(count, parts, parts), count);
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto size = split_begin(count, parts, part + 1) - split_begin(count, parts, part);
        EXPECT_EQ(size, count / parts + (part < count % parts ? 1 : 0));
      }
    }
  }
}

TEST(Order, TextRoundTrip) {
  for (const auto& order : {Order{OrderKind::serial}, kWave, Order{OrderKind::wave, 2147483647}}) {
    EXPECT_EQ(parse_order(to_string(order), 5), order);
  }
  EXPECT_EQ(parse_order("wave", 5), (Order{OrderKind::wave, 5}));
  EXPECT_EQ(parse_claim("static"), Claim::fixed);
  EXPECT_EQ(parse_claim("counter"), Claim::counter);
}

TEST(Order, ErrorsNameTheTextAndTheChoices) {
  for (const std::string text : {"wave:", "wave:0", "wave:-1", "wave:2x", "wave: 2", "wave:2147483648"}) {
    expect_usage_error([&] { parse_order(text, 1); }, {"schedule " + text + ": expected wave:N with N >= 1"});
  }
  for (const std::string text : {"", "Serial", "waves", "serial:2"}) {
    expect_usage_error([&] { parse_order(text, 1); }, {"expected one of serial, wave[:N], or a schedule file"});
  }
  expect_usage_error([] { parse_claim("fixed"); }, {"claim fixed: expected static or counter"});
}

}  // namespace
}  // namespace xs
