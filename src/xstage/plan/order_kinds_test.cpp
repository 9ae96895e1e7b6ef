#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

// What makes each order itself: examples, and a second definition by plain lists for random problems.

namespace xs {
namespace {

struct Widths {
  int linear1, linear2;
};

// Four row blocks: two of the first expert, none of the second, two of the third.
constexpr std::int32_t kGroupBlocks[] = {0, 2, 2, 4};
constexpr RotationStarts kGroupStarts[] = {{1, 0}, {0, 0}, {1, 1}};
constexpr std::int32_t kDispatch[] = {3, 0, 4, 1, 5, 2};

Counts example(const Widths& widths) {
  return {0, 2, 6, 3, widths.linear1, widths.linear2, 1, kGroupBlocks, kGroupStarts, kDispatch};
}

// A small letter for each Linear-1 tile, a capital for each Linear-2 tile; which letter says which block.
std::string letters(const Order& order, const Widths& widths) {
  std::string text;
  for (const auto& task : expand(order, example(widths))) {
    if (task.kind == TaskKind::linear1) text += static_cast<char>('a' + task.block);
    if (task.kind == TaskKind::linear2) text += static_cast<char>('A' + task.block);
  }
  return text;
}

// Spaces are for the reader.
void expect_letters(const Order& order, const Widths& widths, std::string expected) {
  std::erase(expected, ' ');
  EXPECT_EQ(letters(order, widths), expected) << to_string(order);
}

TEST(OrderKinds, Serial) { expect_letters({OrderKind::serial}, {2, 3}, "aabbccdd AAABBBCCCDDD"); }

TEST(OrderKinds, WavesOfExperts) {
  expect_letters({OrderKind::wave, 1}, {2, 3}, "aabb AAABBB  ccdd CCCDDD");
  expect_letters({OrderKind::wave, 2}, {2, 3}, "aabb AAABBB  ccdd CCCDDD");
  expect_letters({OrderKind::wave, 3}, {2, 3}, "aabbccdd AAABBBCCCDDD");
}

TEST(OrderKinds, WavesAsEvenPartsOfTheBlocks) {
  expect_letters({OrderKind::waves, 1}, {2, 3}, "aabbccdd AAABBBCCCDDD");
  expect_letters({OrderKind::waves, 3}, {2, 3}, "aabb AAABBB  cc CCC  dd DDD");
  expect_letters({OrderKind::waves, 9}, {2, 3}, "aa AAA  bb BBB  cc CCC  dd DDD");
}

TEST(OrderKinds, AlternateAfterAWarmUp) {
  expect_letters({OrderKind::alternate, 1}, {2, 3}, "aa  A b A b A c B c B d B d  CCC DDD");
  expect_letters({OrderKind::alternate, 2}, {2, 3}, "aa  AA bb  AB cc  BB dd  CCCDDD");
  expect_letters({OrderKind::alternate, 4}, {2, 3}, "aabb  AAAB ccdd  BBCCCDDD");
  expect_letters({OrderKind::alternate, 100}, {2, 3}, "aabbccdd AAABBBCCCDDD");
  // More Linear-1 than Linear-2 tiles: the warm-up keeps what the turns cannot catch up.
  expect_letters({OrderKind::alternate, 1}, {3, 1}, "aaabbbccc  A d B d C d  D");
  // Linear-1 ends within a turn.
  expect_letters({OrderKind::alternate, 4}, {3, 4}, "aaa  AAAA bbbc  BBBB ccdd  CCCC d  DDDD");
}

TEST(OrderKinds, LagMergesEvenly) {
  expect_letters({OrderKind::lag, 1}, {2, 3}, "aa  bAbAA  cBcBB  dCdCC  DDD");
  expect_letters({OrderKind::lag, 2}, {2, 3}, "aabb  cAcAA  dBdBB  CCCDDD");
  expect_letters({OrderKind::lag, 1}, {4, 2}, "aaaa  bbAbbA  ccBccB  ddCddC  DD");
  expect_letters({OrderKind::lag, 4}, {2, 3}, "aabbccdd AAABBBCCCDDD");
  expect_letters({OrderKind::lag, 5}, {2, 3}, "aabbccdd AAABBBCCCDDD");
}

TEST(OrderKinds, RotationsStayWithinAnExpert) {
  expect_letters({OrderKind::serial, 1, Rotation::own_last}, {1, 2}, "badc BBAADDCC");
  expect_letters({OrderKind::lag, 1, Rotation::own_first}, {1, 2}, "a bAA dBB cDD CC");
}

constexpr Counts kExample{0, 2, 6, 3, 2, 1, 1, kGroupBlocks, nullptr, kDispatch};
static_assert(kExample.num_tasks() == 6 + 4 * (2 + 1) + 1);
static_assert(task_at({OrderKind::wave, 1}, kExample, 0) == Task{TaskKind::dispatch, 3, 0});
static_assert(task_at({OrderKind::wave, 1}, kExample, 9) == Task{TaskKind::linear1, 1, 1});
static_assert(task_at({OrderKind::wave, 1}, kExample, 10) == Task{TaskKind::linear2, 0, 0});
static_assert(task_at({OrderKind::alternate, 1}, kExample, 6 + 7) == Task{TaskKind::linear1, 3, 0});
static_assert(task_at({OrderKind::lag, 1}, kExample, 6 + 4) == Task{TaskKind::linear2, 0, 0});
static_assert(task_at({OrderKind::lag, 1}, kExample, 18) == Task{TaskKind::reduce, 0, 0});

// Both sequences of an order, to be merged by hand.
struct Sequences {
  std::vector<Task> linear1, linear2, merged;
  std::size_t next1 = 0, next2 = 0;

  Sequences(const Order& order, const Counts& counts) {
    for (std::int32_t position = 0; position < counts.num_blocks(); ++position) {
      const auto block = block_at(order, counts, position);
      for (int tile = 0; tile < counts.linear1_tiles; ++tile) linear1.push_back({TaskKind::linear1, block, tile});
      for (int tile = 0; tile < counts.linear2_tiles; ++tile) linear2.push_back({TaskKind::linear2, block, tile});
    }
  }
  void take1(std::int64_t count) {
    for (; count > 0 && next1 < linear1.size(); --count) merged.push_back(linear1[next1++]);
  }
  void take2(std::int64_t count) {
    for (; count > 0 && next2 < linear2.size(); --count) merged.push_back(linear2[next2++]);
  }
};

std::vector<Task> linear_tasks(const Order& order, const Counts& counts) {
  auto tasks = expand(order, counts);
  std::erase_if(tasks,
                [](const Task& task) { return task.kind == TaskKind::dispatch || task.kind == TaskKind::reduce; });
  return tasks;
}

// Calls body(order, counts) for every order of one kind on every rank of every random problem.
template <class Body>
void for_orders(OrderKind kind, Body&& body) {
  for_random_ranks([&](const MoeProblem&, int, const Counts& counts) {
    for (const auto& order : orders_of(counts)) {
      if (order.kind != kind) continue;
      SCOPED_TRACE(to_string(order));
      body(order, counts);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(OrderKinds, SerialPutsAllLinear1BeforeAllLinear2) {
  for_orders(OrderKind::serial, [](const Order& order, const Counts& counts) {
    EXPECT_TRUE(std::ranges::is_sorted(expand(order, counts), {}, &Task::kind));
  });
}

TEST(OrderKinds, AWaveIsSerialWithinItsExperts) {
  for_orders(OrderKind::wave, [](const Order& order, const Counts& counts) {
    Sequences by_hand(order, counts);
    for (std::int64_t begin = 0; begin < counts.num_groups; begin += order.n) {
      const auto end = std::min<std::int64_t>(begin + order.n, counts.num_groups);
      const auto blocks = counts.group_blocks[end] - counts.group_blocks[begin];
      by_hand.take1(blocks * counts.linear1_tiles);
      by_hand.take2(blocks * counts.linear2_tiles);
    }
    EXPECT_EQ(linear_tasks(order, counts), by_hand.merged);
  });
}

TEST(OrderKinds, WavesAreSerialWithinEvenParts) {
  for_orders(OrderKind::waves, [](const Order& order, const Counts& counts) {
    Sequences by_hand(order, counts);
    const auto blocks = counts.num_blocks();
    for (std::int32_t part = 0; part < std::min(order.n, blocks); ++part) {
      const auto size = blocks / order.n + (part < blocks % order.n ? 1 : 0);
      by_hand.take1(size * counts.linear1_tiles);
      by_hand.take2(size * counts.linear2_tiles);
    }
    EXPECT_EQ(linear_tasks(order, counts), by_hand.merged);
  });
}

std::vector<Task> alternate_by_hand(const Order& order, const Counts& counts, std::int32_t warm_up) {
  Sequences by_hand(order, counts);
  by_hand.take1(std::int64_t{warm_up} * counts.linear1_tiles);
  while (by_hand.next2 < by_hand.linear2.size()) {
    by_hand.take2(order.n);
    by_hand.take1(order.n);
  }
  by_hand.take1(counts.num_linear1());  // left over where the warm-up is too short
  return by_hand.merged;
}

bool linear2_stands_behind_linear1(const std::vector<Task>& tasks, const Counts& counts) {
  std::vector<int> done(static_cast<std::size_t>(counts.num_blocks()));
  for (const auto& task : tasks) {
    auto& tiles = done[static_cast<std::size_t>(task.block)];
    if (task.kind == TaskKind::linear1) ++tiles;
    if (task.kind == TaskKind::linear2 && tiles < counts.linear1_tiles) return false;
  }
  return true;
}

TEST(OrderKinds, AlternateTakesTurnsBehindTheShortestSafeWarmUp) {
  for_orders(OrderKind::alternate, [](const Order& order, const Counts& counts) {
    if (counts.num_blocks() == 0) return;
    const auto warm_up = alternate_warm_up(counts, order.n);
    ASSERT_GE(warm_up, 1);
    ASSERT_LE(warm_up, counts.num_blocks());
    EXPECT_EQ(linear_tasks(order, counts), alternate_by_hand(order, counts, warm_up));
    EXPECT_TRUE(linear2_stands_behind_linear1(alternate_by_hand(order, counts, warm_up), counts));
    EXPECT_FALSE(linear2_stands_behind_linear1(alternate_by_hand(order, counts, warm_up - 1), counts));
  });
}

// Shapes that random problems do not reach: few tiles or many, few blocks or many, turns that fit and turns that do
// not.
TEST(OrderKinds, TheWarmUpIsTheShortestSafeOneForEveryWidth) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    const std::int32_t blocks[] = {0, dice.whole(1, 60)};
    const Counts counts{0, 1, 0, 1, dice.whole(1, 40), dice.whole(1, 40), 0, blocks};
    const Order order{OrderKind::alternate, dice.whole(1, 150)};
    const auto warm_up = alternate_warm_up(counts, order.n);
    SCOPED_TRACE(fmt::format("{} blocks of {} and {} tiles, {} in turn: warm-up {}", blocks[1], counts.linear1_tiles,
                             counts.linear2_tiles, order.n, warm_up));
    ASSERT_TRUE(linear2_stands_behind_linear1(alternate_by_hand(order, counts, warm_up), counts));
    ASSERT_FALSE(linear2_stands_behind_linear1(alternate_by_hand(order, counts, warm_up - 1), counts));
    ASSERT_EQ(linear_tasks(order, counts), alternate_by_hand(order, counts, warm_up));
  }
}

TEST(OrderKinds, MaxLineMinusStairsEqualsTheLargestOfAll) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Dice dice(seed);
    const int n = dice.whole(1, 300), a = dice.whole(1, 60), c = dice.whole(1, 60), m = dice.whole(1, 200);
    std::int64_t largest = 0;
    for (int x = 0; x < n; ++x) largest = std::max<std::int64_t>(largest, a * x - m * (c * x / m));
    ASSERT_EQ(max_line_minus_stairs(n, a, c, m), largest) << n << " " << a << " " << c << " " << m;
  }
}

TEST(OrderKinds, LagPutsLinear2OfABlockAmongLinear1OfTheBlockNLater) {
  for_orders(OrderKind::lag, [](const Order& order, const Counts& counts) {
    Sequences by_hand(order, counts);
    const auto behind = std::min(order.n, counts.num_blocks());
    by_hand.take1(std::int64_t{behind} * counts.linear1_tiles);
    for (std::int32_t block = behind; block < counts.num_blocks(); ++block) {
      // After k tiles of a step, Linear-1 has its share of k, rounded up.
      const int tiles = counts.linear1_tiles + counts.linear2_tiles;
      for (int k = 1, done1 = 0; k <= tiles; ++k) {
        const bool is_linear1 = done1 * tiles < k * counts.linear1_tiles;
        by_hand.take1(is_linear1 ? 1 : 0);
        by_hand.take2(is_linear1 ? 0 : 1);
        done1 += is_linear1 ? 1 : 0;
      }
    }
    by_hand.take2(counts.num_linear2());
    EXPECT_EQ(linear_tasks(order, counts), by_hand.merged);
  });
}

TEST(OrderKinds, AnNBeyondWhatItCountsIsSerial) {
  for_random_ranks([](const MoeProblem&, int, const Counts& counts) {
    const auto serial = expand({OrderKind::serial}, counts);
    const auto blocks = std::max(counts.num_blocks(), 1);
    for (const int n : {0, 1, 1000, 2'000'000'000}) {
      EXPECT_EQ(expand({OrderKind::wave, std::max(counts.num_groups, 1) + n}, counts), serial);
      EXPECT_EQ(expand({OrderKind::lag, blocks + n}, counts), serial);
    }
    EXPECT_EQ(expand({OrderKind::waves, 1}, counts), serial);
    EXPECT_EQ(expand({OrderKind::alternate, 2147483647}, counts), serial);
  });
}

// Seen from the rows: which sources a block's rows come from, block after block of an expert.
TEST(OrderKinds, RotationsVisitTheSourcesOfAnExpertInTurn) {
  for_random_ranks([](const MoeProblem& problem, int rank, const Counts& counts) {
    const int ranks = problem.num_ranks();
    for (int group = 0; group < counts.num_groups; ++group) {
      const auto begin = counts.group_blocks[group], end = counts.group_blocks[group + 1];
      const auto visit = [&](Rotation rotation, auto&& body) {
        for (auto position = begin; position < end; ++position) {
          const auto block = block_at({OrderKind::serial, 1, rotation}, counts, position);
          ASSERT_TRUE(block >= begin && block < end);
          body(problem.segments(problem.block(rank, block)));
        }
      };
      const auto is_own = [&](const MoeSegment& segment) { return segment.source == rank; };
      bool own_only = false;
      visit(Rotation::own_last, [&](const auto& segments) {
        const bool now = std::ranges::all_of(segments, is_own);
        EXPECT_TRUE(now || !own_only) << "rows for a peer behind blocks of own rows only";
        own_only = now;
      });
      bool others = false;
      visit(Rotation::own_first, [&](const auto& segments) {
        const bool now = std::ranges::all_of(segments, is_own);
        EXPECT_TRUE(!now || !others) << "a block of own rows only behind rows of a peer";
        others = others || !now;
      });
      // From the first to the last block, the next row's owner is never further away around the ring.
      int before = 0;
      visit(Rotation::own_last, [&](const auto& segments) {
        const int distance = (segments.back().source - rank - 1 + ranks) % ranks;
        EXPECT_GE(distance, before);
        before = distance;
      });
      before = 0;
      visit(Rotation::own_first, [&](const auto& segments) {
        const int distance = (segments.front().source - rank + ranks) % ranks;
        EXPECT_GE(distance, before);
        before = distance;
      });
    }
  });
}

}  // namespace
}  // namespace xs
