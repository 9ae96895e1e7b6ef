#include "xstage/plan/order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/random_problem.hpp"

// Laws of every order. What makes each order itself is in order_kinds_test.cpp.

namespace xs {
namespace {

using TaskKey = std::tuple<TaskKind, std::int32_t, std::int32_t>;

TEST(Order, HoldsEveryDispatchLinearAndReduceTileExactlyOnce) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    std::set<TaskKey> wanted;
    for (int expert = 0; expert < problem.shape().all_experts(); ++expert)
      for (int part = 0; part < counts.dispatch_parts; ++part) wanted.insert({TaskKind::dispatch, expert, part});
    for (int block = 0; block < problem.num_blocks(rank); ++block) {
      for (int tile = 0; tile < counts.linear1_tiles; ++tile) wanted.insert({TaskKind::linear1, block, tile});
      for (int tile = 0; tile < counts.linear2_tiles; ++tile) wanted.insert({TaskKind::linear2, block, tile});
    }
    const auto tokens = problem.tokens_of(rank);
    for (int chunk = 0; chunk * problem.tiling().reduce_tokens < tokens; ++chunk) {
      wanted.insert({TaskKind::reduce, chunk, 0});
    }
    for (const auto& order : orders_of(counts)) {
      SCOPED_TRACE(to_string(order));
      std::set<TaskKey> found;
      for (const auto& task : expand(order, counts)) {
        EXPECT_TRUE(found.insert({task.kind, task.block, task.tile}).second) << to_string(task) << " twice";
      }
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
      EXPECT_EQ(std::ranges::count(tasks, TaskKind::dispatch, &Task::kind), counts.num_dispatch());
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

// Blocks are whole and both linears take them in one sequence, so activations are used in the order of their making.
TEST(Order, BothLinearsVisitTheBlocksInOneSequenceTileByTile) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    for (const auto& order : orders_of(counts)) {
      std::map<TaskKind, std::vector<std::int32_t>> visited;
      std::map<TaskKind, int> next_tile;
      for (const auto& task : expand(order, counts)) {
        if (task.kind != TaskKind::linear1 && task.kind != TaskKind::linear2) continue;
        const int width = task.kind == TaskKind::linear1 ? counts.linear1_tiles : counts.linear2_tiles;
        auto& tile = next_tile[task.kind];
        if (tile == 0) visited[task.kind].push_back(task.block);
        ASSERT_EQ(task, (Task{task.kind, visited[task.kind].back(), tile})) << to_string(order);
        tile = (tile + 1) % width;
      }
      EXPECT_EQ(visited[TaskKind::linear1], visited[TaskKind::linear2]) << to_string(order);
    }
  });
}

TEST(Order, TheCheckerAcceptsEveryOrderOverTenThousandSchedules) {
  int num_accepted = 0;
  for_random_problems([&](const RandomProblem& random) {
    for (const auto& order : orders_of(random.problem.counts(0))) {
      const auto faults = check(random.problem.schedule(order));
      ASSERT_TRUE(faults.empty()) << to_string(order) << "\n" << faults.front().text;
      ++num_accepted;
    }
  });
  EXPECT_GE(num_accepted, 10000);
}

TEST(Order, DispatchVisitsFirstExpertsOfAllRanksFirstInTurnBeginningWithTheNext) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    std::map<std::int32_t, std::vector<int>> visits;  // by the expert's number on its holder
    std::int32_t last_group = 0;
    for (std::int32_t index = 0; index < counts.num_experts; ++index) {
      const auto expert = counts.dispatch_experts[index];
      const int holder = problem.holder(expert, rank);
      const auto local = problem.local_experts(holder);
      const auto group = static_cast<std::int32_t>(std::ranges::find(local, expert) - local.begin());
      EXPECT_GE(group, last_group);
      visits[last_group = group].push_back(holder);
    }
    for (auto& [group, holders] : visits) {
      if (static_cast<int>(holders.size()) == counts.num_ranks) {
        EXPECT_EQ(holders.front(), (rank + 1) % counts.num_ranks);
      }
      // Around the ranks once.
      std::ranges::rotate(holders, std::ranges::min_element(holders));
      EXPECT_TRUE(std::ranges::is_sorted(holders)) << "group " << group;
    }
  });
}

// While every rank has an expert to visit, no two ranks send to the same one at the same step.
TEST(Order, DispatchOfAllRanksAtOneStepGoesToDifferentRanks) {
  for_random_problems([](const RandomProblem& random) {
    const int ranks = random.problem.num_ranks();
    const auto problem = make_problem(random.problem.shape(), random.problem.tiling(), ranks, random.routing);
    for (int index = 0; index < problem.shape().num_experts / ranks * ranks; ++index) {
      std::set<int> holders;
      for (int rank = 0; rank < ranks; ++rank) {
        holders.insert(problem.holder(problem.counts(rank).dispatch_experts[index], rank));
      }
      ASSERT_EQ(holders.size(), static_cast<std::size_t>(ranks)) << "step " << index;
    }
  });
}

TEST(Order, ExpandIsTaskAtOfEveryClaim) {
  const auto problem = random_problem(3).problem;
  const auto counts = problem.counts(0);
  for (const auto& order : orders_of(counts)) {
    const auto tasks = expand(order, counts);
    ASSERT_EQ(tasks.size(), static_cast<std::size_t>(counts.num_tasks()));
    for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
      EXPECT_EQ(tasks[claim], task_at(order, counts, static_cast<std::int64_t>(claim)));
    }
  }
}

// Claims beyond 32 bits: the ends stand where they must, and so does the middle of a lag.
TEST(Order, CountsBeyondThirtyTwoBits) {
  constexpr std::int32_t kBlocks = 2'000'000'000;
  const std::int32_t group_blocks[] = {0, 1'000'000'000, kBlocks};
  const RotationStarts starts[] = {{999'999'999, 1}, {1, 999'999'999}};
  const Counts counts{0, 1, 2, 2, 3000, 5000, 1, group_blocks, starts};
  for (const auto& order : orders_of(counts)) {
    SCOPED_TRACE(to_string(order));
    EXPECT_EQ(linear_task(order, counts, 0), (Task{TaskKind::linear1, block_at(order, counts, 0), 0}));
    EXPECT_EQ(linear_task(order, counts, counts.num_linear() - 1),
              (Task{TaskKind::linear2, block_at(order, counts, kBlocks - 1), 4999}));
  }
  const Order lag{OrderKind::lag, 8};
  const std::int64_t step = 8 * 3000 + 1'234'567'000LL * 8000;  // of block 1,234,567,008
  EXPECT_EQ(linear_task(lag, counts, step), (Task{TaskKind::linear1, 1'234'567'008, 0}));
  EXPECT_EQ(linear_task(lag, counts, step + 7999), (Task{TaskKind::linear2, 1'234'567'000, 4999}));
}

TEST(Order, SplitIsContiguousEvenAndComplete) {
  for (std::int64_t count = 0; count <= 40; ++count) {
    for (std::int64_t parts = 1; parts <= 12; ++parts) {
      EXPECT_EQ(split_begin(count, parts, 0), 0);
      EXPECT_EQ(split_begin(count, parts, parts), count);
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto begin = split_begin(count, parts, part), end = split_begin(count, parts, part + 1);
        EXPECT_EQ(end - begin, count / parts + (part < count % parts ? 1 : 0));
        for (auto index = begin; index < end; ++index) EXPECT_EQ(split_part(count, parts, index), part);
      }
    }
  }
}

const OrderDefaults kDefaults{5, 132};

TEST(Order, TextRoundTrip) {
  const auto problem = random_problem(3).problem;
  for (const auto& order : orders_of(problem.counts(0))) EXPECT_EQ(parse_order(to_string(order), kDefaults), order);
  EXPECT_EQ(to_string({OrderKind::lag, 8, Rotation::own_last}), "lag:8+own-last");
  EXPECT_EQ(to_string({OrderKind::serial, 1, Rotation::own_first}), "serial+own-first");
  EXPECT_EQ(parse_order("wave", kDefaults), (Order{OrderKind::wave, 5}));
  EXPECT_EQ(parse_order("alternate+own-last", kDefaults), (Order{OrderKind::alternate, 132, Rotation::own_last}));
  EXPECT_EQ(parse_claim("static"), Claim::fixed);
  EXPECT_EQ(parse_claim("counter"), Claim::counter);
}

TEST(Order, ErrorsNameTheTextAndTheChoices) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    expect_usage_error([&] { parse_order(text, kDefaults); }, {"schedule " + text + ": " + why});
  };
  for (const std::string text : {"wave:", "wave:0", "wave:-1", "wave:2x", "wave: 2", "wave:2147483648"}) {
    refuses(text, "expected wave:N with N >= 1 local experts per wave");
  }
  refuses("waves", "expected waves:N with N >= 1 parts of the row blocks");
  refuses("lag", "expected lag:N with N >= 1 row blocks");
  refuses("lag:0+own-last", "expected lag:N with N >= 1 row blocks");
  refuses("alternate:", "expected alternate:N with N >= 1 tiles in turn");
  for (const std::string text : {"", "Serial", "laggard", "serial:2", "lag:2+", "lag:2+own", "own-last"}) {
    refuses(text, "unknown; expected one of serial, wave[:N], waves:N, alternate[:N], lag:N, each also with +own-last");
  }
  expect_usage_error([] { parse_claim("fixed"); }, {"claim fixed: expected static or counter"});
}

TEST(Order, EveryListedOrderParses) {
  for (const auto& info : list_orders()) {
    auto text = info.name;
    if (const auto at = text.find("[:N]"); at != text.npos) text.erase(at);
    if (const auto at = text.find(":N"); at != text.npos) text.replace(at, 2, ":3");
    if (text.starts_with("ORDER")) text.replace(0, 5, "serial");
    EXPECT_NO_THROW(parse_order(text, kDefaults)) << info.name;
  }
}

// A file may hold megabytes without a comma.
TEST(Order, AnErrorQuotesTheBeginningOfALongName) {
  const std::string name = "serial" + std::string(5000, 'x');
  for (const auto& text : {name, "lag:" + name}) {
    try {
      parse_order(text, {});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 500u);
    }
  }
}

}  // namespace
}  // namespace xs
