#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/loose_schedule.hpp"

// What the tasks of a MoeProblem wait for, send, raise and cost.

namespace xs {
namespace {

constexpr std::uint64_t kNumProblems = 300;

// Calls body(problem, bytes, schedule) for random problems in random orders, most of them with a ring.
template <class Body>
void for_random_schedules(Body&& body) {
  const MoeBytes bytes{1, 3, 4};
  for (std::uint64_t seed = 0; seed < kNumProblems; ++seed) {
    const auto random = random_problem(seed);
    const auto order = random_order(seed);
    SCOPED_TRACE(random.what + ", " + to_string(order));
    const auto problem = with_random_ring(random.problem, order, seed);
    body(problem, bytes, problem.schedule(order, bytes));
    if (testing::Test::HasFailure()) return;
  }
}

// Calls body(rank, claim, task) for every task of one kind.
template <class Body>
void for_tasks(const Schedule& schedule, TaskKind kind, Body&& body) {
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    const auto& tasks = schedule.ranks[static_cast<std::size_t>(rank)].tasks;
    for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
      if (tasks[claim].kind == kind) body(rank, claim, tasks[claim]);
    }
  }
}

const RankSchedule& of(const Schedule& schedule, int rank) { return schedule.ranks[static_cast<std::size_t>(rank)]; }

using Traffic = std::map<std::pair<int, int>, std::int64_t>;  // (from, to)

Traffic bytes_sent(const Schedule& schedule, TaskKind kind) {
  Traffic sent;
  for_tasks(schedule, kind, [&](int rank, std::size_t claim, const Task&) {
    for (const auto& send : of(schedule, rank).sends[claim]) {
      EXPECT_GT(send.bytes, 0);
      sent[{rank, send.rank}] += send.bytes;
    }
  });
  return sent;
}

// Rows of source's tokens on experts of holder.
std::int64_t rows_between(const MoeProblem& problem, int source, int holder) {
  std::int64_t rows = 0;
  for (const auto expert : problem.local_experts(holder)) {
    if (problem.holder(expert, source) == holder) rows += problem.rows_of(source, expert);
  }
  return rows;
}

TEST(MoeEffects, DispatchSendsEveryRowOnceToTheRankOfItsExpert) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    auto sent = bytes_sent(schedule, TaskKind::dispatch);
    for (int source = 0; source < problem.num_ranks(); ++source) {
      for (int holder = 0; holder < problem.num_ranks(); ++holder) {
        EXPECT_EQ((sent[{source, holder}]), rows_between(problem, source, holder) * problem.shape().hidden * 3);
      }
    }
  });
}

TEST(MoeEffects, Linear2SendsEveryRowOnceToItsOwner) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    auto sent = bytes_sent(schedule, TaskKind::linear2);
    for (int source = 0; source < problem.num_ranks(); ++source) {
      for (int holder = 0; holder < problem.num_ranks(); ++holder) {
        EXPECT_EQ((sent[{holder, source}]), rows_between(problem, source, holder) * problem.shape().hidden * 4);
      }
    }
  });
}

TEST(MoeEffects, OnlyDispatchAndLinear2Send) {
  for_random_schedules([](const MoeProblem&, const MoeBytes&, const Schedule& schedule) {
    EXPECT_TRUE(bytes_sent(schedule, TaskKind::linear1).empty());
    EXPECT_TRUE(bytes_sent(schedule, TaskKind::reduce).empty());
  });
}

TEST(MoeEffects, RaisesOfEveryFlagAddUpToWhatItsWaitersWaitFor) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    std::map<std::pair<int, int>, std::int64_t> raised;  // (rank, flag)
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      for (std::size_t claim = 0; claim < of(schedule, rank).tasks.size(); ++claim) {
        for (const auto& raise : of(schedule, rank).raises[claim]) raised[{raise.rank, raise.flag}] += raise.add;
      }
    }
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      for (std::size_t claim = 0; claim < of(schedule, rank).tasks.size(); ++claim) {
        for (const auto& wait : of(schedule, rank).waits[claim]) {
          EXPECT_EQ((raised[{rank, wait.flag}]), wait.count) << flag_name(schedule.flags, wait.flag);
        }
      }
      // And they are the rows of a block, the Linear-1 tiles of a block, the Linear-2 tiles with rows of this rank.
      for (std::int32_t block = 0; block < problem.num_blocks(rank); ++block) {
        EXPECT_EQ((raised[{rank, problem.arrived(block)}]), problem.block(rank, block).num_rows);
        EXPECT_EQ((raised[{rank, problem.activated(block)}]), problem.counts(rank).linear1_tiles);
      }
      // A slot is released for every block that finds it taken.
      const auto& tasks = of(schedule, rank).tasks;
      const auto uses = activation_uses(tasks, problem.num_blocks(rank));
      for (std::int32_t use = 0; use < problem.num_blocks(rank); ++use) {
        const bool needed = use + problem.activation_slots() < problem.num_blocks(rank);
        EXPECT_EQ((raised[{rank, problem.released(uses.block[static_cast<std::size_t>(use)])}]),
                  needed ? problem.counts(rank).linear2_tiles : 0);
      }
      for (int peer = 0; peer < problem.num_ranks(); ++peer) {
        std::int64_t tiles = 0;
        for (std::int32_t block = 0; block < problem.num_blocks(peer); ++block) {
          for (const auto& segment : problem.segments(problem.block(peer, block))) {
            if (segment.source == rank) tiles += problem.counts(peer).linear2_tiles;
          }
        }
        EXPECT_EQ((raised[{rank, problem.combined(peer)}]), tiles);
      }
    }
  });
}

TEST(MoeEffects, TasksWaitForAllThatTheyRead) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    const auto waits = [&](int rank, std::size_t claim) {
      std::vector<std::int32_t> flags;
      for (const auto& wait : of(schedule, rank).waits[claim]) flags.push_back(wait.flag);
      return flags;
    };
    using Flags = std::vector<std::int32_t>;
    for_tasks(schedule, TaskKind::dispatch,
              [&](int rank, std::size_t claim, const Task&) { EXPECT_EQ(waits(rank, claim), Flags{}); });
    for_tasks(schedule, TaskKind::linear1, [&](int rank, std::size_t claim, const Task& task) {
      const auto uses = activation_uses(of(schedule, rank).tasks, problem.num_blocks(rank));
      Flags expected{problem.arrived(task.block)};
      const auto before = uses.use[static_cast<std::size_t>(task.block)] - problem.activation_slots();
      if (before >= 0) expected.push_back(problem.released(uses.block[static_cast<std::size_t>(before)]));
      EXPECT_EQ(waits(rank, claim), expected);
    });
    for_tasks(schedule, TaskKind::linear2, [&](int rank, std::size_t claim, const Task& task) {
      EXPECT_EQ(waits(rank, claim), Flags{problem.activated(task.block)});
    });
    for_tasks(schedule, TaskKind::reduce, [&](int rank, std::size_t claim, const Task&) {
      Flags peers;
      for (int peer = 0; peer < problem.num_ranks(); ++peer) {
        if (rows_between(problem, rank, peer) > 0) peers.push_back(problem.combined(peer));
      }
      EXPECT_EQ(waits(rank, claim), peers);
    });
  });
}

TEST(MoeEffects, ActivationsAreWrittenAndReadByTheirBlockAloneInTheSlotOfItsUse) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    ASSERT_EQ(schedule.regions[1].name, "activations");
    EXPECT_EQ(schedule.regions[1].num_slots, problem.activation_slots());
    std::map<std::tuple<int, int, int>, int> block_of;  // (rank, slot, generation)
    for (const auto kind : {TaskKind::linear1, TaskKind::linear2}) {
      for_tasks(schedule, kind, [&](int rank, std::size_t claim, const Task& task) {
        const auto mode = kind == TaskKind::linear1 ? AccessMode::write : AccessMode::read;
        int found = 0;
        for (const auto& access : of(schedule, rank).accesses[claim]) {
          if (access.region != 1) continue;
          ++found;
          EXPECT_EQ(access.mode, mode);
          EXPECT_EQ(access.rank, rank);
          EXPECT_LT(access.slot, problem.activation_slots());
          const auto place = std::tuple(rank, access.slot, access.generation);
          EXPECT_EQ(block_of.try_emplace(place, task.block).first->second, task.block);
        }
        EXPECT_EQ(found, 1);
      });
    }
  });
}

// Every send writes where its bytes go, and what is written to a peer is sent.
TEST(MoeEffects, TasksWriteToThePeersThatTheySendTo) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      const auto& own = of(schedule, rank);
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        std::set<int> sent, written;
        for (const auto& send : own.sends[claim]) sent.insert(send.rank);
        for (const auto& access : own.accesses[claim]) {
          if (access.mode == AccessMode::write && schedule.regions[access.region].name != "activations") {
            written.insert(access.rank);
          }
        }
        EXPECT_EQ(written, sent) << to_string(own.tasks[claim]);
      }
    }
  });
}

TEST(MoeEffects, WeightsOfEveryExpertWithRowsAreLoadedOnceByEveryHolder) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes& bytes, const Schedule& schedule) {
    std::map<std::tuple<TaskKind, int, int>, double> loaded;  // by rank and expert
    for (const auto kind : {TaskKind::linear1, TaskKind::linear2}) {
      for_tasks(schedule, kind, [&](int rank, std::size_t claim, const Task& task) {
        loaded[{kind, rank, problem.block(rank, task.block).expert}] += of(schedule, rank).work[claim].load_bytes;
      });
    }
    const double matrix =
        static_cast<double>(problem.shape().hidden) * static_cast<double>(problem.shape().intermediate) * bytes.weight;
    for (const auto& [key, amount] : loaded) {
      const auto& [kind, rank, expert] = key;
      EXPECT_NEAR(amount / matrix, kind == TaskKind::linear1 ? 2 : 1, 1e-9) << "expert " << expert << ", rank " << rank;
    }
  });
}

TEST(MoeEffects, DispatchAndReduceReadTheirRowsAndComputeNothing) {
  for_random_schedules([](const MoeProblem& problem, const MoeBytes&, const Schedule& schedule) {
    const double hidden = static_cast<double>(problem.shape().hidden);
    for (int rank = 0; rank < problem.num_ranks(); ++rank) {
      double dispatched = 0, reduced = 0;
      const auto& own = of(schedule, rank);
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        const auto kind = own.tasks[claim].kind;
        if (kind == TaskKind::dispatch) dispatched += own.work[claim].load_bytes;
        if (kind == TaskKind::reduce) reduced += own.work[claim].load_bytes;
        if (kind == TaskKind::dispatch || kind == TaskKind::reduce) {
          EXPECT_EQ(own.work[claim].flops, 0);
        }
      }
      std::int64_t rows = 0;
      for (int holder = 0; holder < problem.num_ranks(); ++holder) rows += rows_between(problem, rank, holder);
      const auto tokens = problem.tokens_of(rank);
      EXPECT_EQ(dispatched, static_cast<double>(rows) * hidden * 3);
      EXPECT_EQ(reduced, static_cast<double>(tokens * problem.shape().num_slots()) * hidden * 4);
    }
  });
}

// Two ranks, two experts; expert 1 on rank 1 has 5 rows of rank 0 and 4 of rank 1 in blocks of 8.
struct ByHand {
  MoeProblem problem{{200, 100, 2, 1}, {8, 64, 128, 4}, 2, 12, {0, 5, 3, 4}};
  RankSchedule rank1 = problem.rank_schedule(
      1, {{TaskKind::dispatch, 1, 0}, {TaskKind::linear1, 1, 1}, {TaskKind::linear2, 0, 1}, {TaskKind::reduce, 1, 0}},
      {2, 2, 2});

  template <class T>
  static std::vector<T> list(std::span<const T> values) {
    return {values.begin(), values.end()};
  }
};

TEST(MoeEffects, RowsThatStraddleBlocksRaiseEveryBlock) {
  const ByHand hand;
  EXPECT_EQ(ByHand::list(hand.rank1.raises[0]),
            (std::vector<Raise>{{1, hand.problem.arrived(0), 3}, {1, hand.problem.arrived(1), 1}}));
}

TEST(MoeEffects, ProductsPayForTheFullTileAndLoadOnlyItsValidColumns) {
  const ByHand hand;
  // Tile 1 of 100 columns in tiles of 64 has 36; two blocks share the expert's weights; gate and up.
  EXPECT_EQ(hand.rank1.work[1].flops, 2.0 * 8 * 200 * 2 * 64);
  EXPECT_EQ(hand.rank1.work[1].load_bytes, 200.0 * 2 * 36 * 2 / 2);
  EXPECT_EQ(hand.rank1.work[2].flops, 2.0 * 8 * 100 * 128);
  EXPECT_EQ(hand.rank1.work[2].load_bytes, 100.0 * 72 * 2 / 2);
}

TEST(MoeEffects, PartialTileAtTheEdgeOfHiddenSendsItsValidColumns) {
  const ByHand hand;
  const auto sends = hand.rank1.sends[2];
  ASSERT_EQ(sends.size(), 2u);
  EXPECT_EQ(sends[0].rank, 0);
  EXPECT_EQ(sends[0].bytes, 5 * 72 * 2);
  EXPECT_EQ(sends[1].rank, 1);
  EXPECT_EQ(sends[1].bytes, 3 * 72 * 2);
  EXPECT_EQ(ByHand::list(hand.rank1.raises[2]),
            (std::vector<Raise>{{0, hand.problem.combined(1), 1}, {1, hand.problem.combined(1), 1}}));
}

TEST(MoeEffects, LastReduceChunkReadsTheTokensThatAreLeft) {
  const ByHand hand;
  EXPECT_EQ(hand.rank1.work[3].load_bytes, (6 - 4) * 1 * 200 * 2);
}

TEST(MoeEffects, DispatchWithoutRowsDoesNothing) {
  const ByHand hand;
  const auto rank0 = hand.problem.rank_schedule(0, {{TaskKind::dispatch, 0, 0}});
  EXPECT_TRUE(rank0.sends[0].empty());
  EXPECT_TRUE(rank0.raises[0].empty());
  EXPECT_EQ(rank0.work[0].load_bytes, 0);
}

TEST(MoeEffects, ExplicitTasksEqualTheExpandedOrder) {
  const auto problem = random_problem(5).problem;
  const Order order{OrderKind::wave, 2};
  std::vector<std::vector<Task>> tasks;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) tasks.push_back(expand(order, problem.counts(rank)));
  const auto implicit = problem.schedule(order), explicitly = problem.schedule(tasks);
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    const auto &a = of(implicit, rank), &b = of(explicitly, rank);
    ASSERT_EQ(a.tasks, b.tasks);
    for (std::size_t claim = 0; claim < a.tasks.size(); ++claim) {
      EXPECT_EQ(ByHand::list(a.waits[claim]), ByHand::list(b.waits[claim]));
      EXPECT_EQ(ByHand::list(a.raises[claim]), ByHand::list(b.raises[claim]));
    }
  }
  tasks.pop_back();
  expect_usage_error([&] { problem.schedule(tasks); }, {fmt::format("{} ranks expected", problem.num_ranks())});
}

}  // namespace
}  // namespace xs
