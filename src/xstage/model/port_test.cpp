#include "xstage/model/port.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "xstage/core/bucket.hpp"
#include "xstage/model/port_drive.hpp"

namespace xs {
namespace {

TEST(PortPool, WorkersInStepEqualOneBucketOnItsShare) {
  Dice dice(1);
  int stalls = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const auto params = plain_port(dice);
    const int workers = dice.whole(1, 140);
    const auto one = random_wishes(dice, 1, 100).front();
    PortPool pool(params, kClock, workers);
    const auto told = drive(pool, Wishes(static_cast<std::size_t>(workers), one));

    const BucketRates rates{params.free_issue * kClock, params.drain / workers, params.capacity / workers};
    Bucket bucket;
    Nanos now{0};
    for (std::size_t burst = 0; burst < one.size(); ++burst) {
      bucket.pass(rates, params.burst_overhead / kClock);
      const Nanos issue = bucket.issue(rates, one[burst].bytes);
      now += params.burst_overhead / kClock + issue;
      stalls += issue > one[burst].bytes / rates.free_issue * 1.01;
      const Nanos drained = now + bucket.outstanding / rates.drain + params.visible_latency;
      for (const auto& worker : told) {
        ASSERT_NEAR(worker.at(burst).issued.value, now.value, 1e-9 * now.value);
        ASSERT_EQ(worker.at(burst).source_free, worker.at(burst).issued);
        ASSERT_NEAR(worker.at(burst).remote_visible.value, drained.value, 1e-9 * drained.value);
      }
      bucket.pass(rates, one[burst].gap);
      now += one[burst].gap;
    }
  }
  EXPECT_GT(stalls, 1000);
}

// Two paths on one port, of any kind.
struct TwoPaths {
  PortParams params;
  Bytes capacity;
  PortPool pool;
  Wishes wishes;
};

TwoPaths two_paths(Dice& dice) {
  const auto params = any_port(dice);
  const int workers = dice.whole(1, 20), others = dice.whole(1, 6);
  TwoPaths port{params, params.capacity_of(workers), PortPool(params, kClock, workers), {}};
  EXPECT_EQ(port.pool.add_workers(any_port(dice), others), workers);
  port.wishes = random_wishes(dice, workers + others, 20);
  return port;
}

TEST(PortPool, EveryByteDrainsOnceAndCapacityIsKept) {
  Dice dice(3);
  int full = 0;
  for (int trial = 0; trial < 200; ++trial) {
    auto port = two_paths(dice);
    const auto told = drive(port.pool, port.wishes, [&](const PortPool& now) {
      ASSERT_GE(now.outstanding(), Bytes{0});
      ASSERT_LE(now.outstanding(), port.capacity);
      full += now.outstanding() == port.capacity;
    });
    for (const auto& worker : told) {
      EXPECT_EQ(worker.size(), 20u);
      for (const auto& burst : worker) EXPECT_GT(burst.remote_visible, Nanos{0});
    }
    const Bytes wanted = total_of(port.wishes);
    EXPECT_NEAR((port.params.drain * port.pool.busy()).value, wanted.value, 1e-9 * wanted.value) << "trial " << trial;
  }
  EXPECT_GT(full, 10000);
}

TEST(PortPool, CompletionLevelsComeInTheirOrder) {
  Dice dice(4);
  for (int trial = 0; trial < 100; ++trial) {
    auto port = two_paths(dice);
    const auto told = drive(port.pool, port.wishes);
    const Nanos emptied = port.capacity / port.params.drain * std::max(1.0, port.params.disorder) * 1.001;
    for (std::size_t w = 0; w < told.size(); ++w) {
      for (std::size_t i = 0; i < told[w].size(); ++i) {
        const Told& burst = told[w][i];
        const double free = port.pool.free_time(port.wishes[w][i].bytes, static_cast<int>(w)).value;
        EXPECT_GE((burst.issued - burst.begin).value, free - 1e-9 * burst.issued.value);
        EXPECT_GE(burst.source_free, burst.issued);
        EXPECT_GE(burst.remote_visible, burst.source_free + port.params.visible_latency);
        EXPECT_LE(burst.remote_visible, burst.source_free + port.params.visible_latency + emptied);
      }
    }
  }
}

TEST(PortPool, NothingIsFasterThanTheDrain) {
  Dice dice(5);
  for (int trial = 0; trial < 100; ++trial) {
    auto port = two_paths(dice);
    Nanos end{0};
    for (const auto& worker : drive(port.pool, port.wishes)) end = max(end, worker.back().source_free);
    EXPECT_LE(total_of(port.wishes), (port.params.drain * end + port.capacity) * (1 + 1e-9));
  }
}

TEST(PortPool, TheSameEveryTime) {
  for (int trial = 0; trial < 20; ++trial) {
    Dice one(static_cast<std::uint64_t>(trial)), two(static_cast<std::uint64_t>(trial));
    auto first = two_paths(one), second = two_paths(two);
    EXPECT_EQ(drive(first.pool, first.wishes), drive(second.pool, second.wishes));
  }
}

TEST(PortPool, WorkersOfEqualBurstsEndTogetherWhoeverCalledFirst) {
  PortPool pool(make_port(20, 100, 10000), kClock, 5);
  for (const auto& worker : drive(pool, Wishes(5, {{Bytes{30000}, Nanos{0}}}))) {
    EXPECT_NEAR(worker.front().issued.value, (150000 - 10000) / 100.0, 1e-6);
  }
}

TEST(PortPool, FullPortIsSplitBetweenGroupsAndThenWithinThem) {
  auto params = make_port(200, 70, 1);  // nothing fits
  params.group_fairness = 1;
  params.groups = {0, 0, 0, 0, 0, 0, 0, 1};
  PortPool pool(params, kClock, 8);
  const auto told = drive(pool, Wishes(8, {{Bytes{7000}, Nanos{0}}}));
  // The lone one has half of the drain; then the seven, with a seventh of its progress, have all of it.
  EXPECT_NEAR(told[7].front().issued.value, 200, 0.1);
  for (int worker = 0; worker < 7; ++worker) {
    EXPECT_NEAR(told[static_cast<std::size_t>(worker)].front().issued.value, 200 + 7 * 6000 / 70.0, 0.1);
  }
}

TEST(PortPool, SecondPathHasItsOwnIssueAndSharesDrainAndStage) {
  const auto slow = make_port(5, 1, 1, 30), fast = make_port(50, 100, 10000);
  PortPool pool(fast, GigaHertz{1}, 1);
  EXPECT_EQ(pool.add_workers(slow, 2), 1);
  EXPECT_EQ(pool.free_time(Bytes{1000}, 0), Nanos{20});
  EXPECT_EQ(pool.free_time(Bytes{1000}, 2), Nanos{230});
  // 50 + 5 + 5 bytes/ns: the port drains 100, whatever the second path's own port would do.
  const Wishes wishes(3, {{Bytes{1000}, Nanos{0}}});
  EXPECT_NEAR(drive(pool, wishes)[2].front().issued.value, 230, 1e-9);

  PortPool full(make_port(50, 20, 100), GigaHertz{1}, 1);
  full.add_workers(slow, 2);
  Bytes most{0};
  const auto told = drive(full, wishes, [&](const PortPool& now) { most = max(most, now.outstanding()); });
  EXPECT_NEAR(most.value, 100, 1e-9);
  // The slow ones take 5 each and leave 10 of 20 to the fast one.
  EXPECT_NEAR(told[1].front().issued.value, 230, 1e-9);
  EXPECT_NEAR(told[0].front().issued.value, 30 + (1000 - 100 - 20 * 30) / 10.0, 1e-9);
}

// Stores that come at exactly the drain's rate leave nothing outstanding: then nothing is waited for.
TEST(PortPool, WhatFindsAnEmptyStageHasDrainedAtOnce) {
  auto params = make_port(20, 40, 1e6);
  for (const double disorder : {0.0, 2.5}) {
    params.disorder = disorder;
    PortPool pool(params, GigaHertz{1}, 2);
    const Wish burst{Bytes{1000}, Nanos{0}}, half{Bytes{500}, Nanos{0}};
    const auto told = drive(pool, {{burst, burst}, {half, half, half, half}});
    for (const auto& worker : told) {
      for (const auto& done : worker) EXPECT_EQ(done.remote_visible, done.issued + params.visible_latency);
    }
    EXPECT_EQ(pool.outstanding(), Bytes{0});
    EXPECT_NEAR(pool.busy().value, 4000 / 40.0, 1e-9);
  }
}

TEST(PortPool, OwnStageTakesABurstBeforeItIsRead) {
  auto params = make_port(40, 1000, 1e6);
  params.engine = {25};
  params.engine_capacity = {30000};
  PortPool pool(params, GigaHertz{1}, 1);
  const auto told = drive(pool, {{{Bytes{20000}, Nanos{10000}}, {Bytes{100000}, Nanos{0}}}}).front();
  EXPECT_NEAR((told[0].issued - told[0].begin).value, 20000 / 40.0, 1e-9);
  EXPECT_NEAR((told[0].source_free - told[0].begin).value, 20000 / 25.0, 1e-9);
  EXPECT_NEAR((told[1].issued - told[1].begin).value, (100000 - 30000) / 25.0, 1e-9);
  EXPECT_NEAR((told[1].source_free - told[1].begin).value, 100000 / 25.0, 1e-9);
  EXPECT_NEAR(pool.free_time(Bytes{100000}).value, 70000 / 25.0, 1e-9);
}

TEST(PortParams, CapacityOfFewWorkersIsTheirOwnAndOfManyThePorts) {
  auto params = make_port(20, 100, 4e6);
  EXPECT_NEAR(params.capacity_of(1).value, 4e6, 1);
  params.worker_capacity = {1e5};
  EXPECT_NEAR(params.capacity_of(40).value, 2e6, 1e-3);
  EXPECT_NEAR(params.capacity_of(1).value, 1e5 / 1.025, 1e-3);
  EXPECT_NEAR(params.capacity_of(1 << 20).value, 4e6, 200);
}

TEST(PortPool, RefusesWhatCannotBe) {
  const auto params = make_port(20, 100, 10000);
  const auto refuses = [](auto&& call) { expect_error(ErrorKind::internal, call, {"PortPool"}); };
  PortPool pool(params, kClock, 1);
  refuses([&] { pool.begin(0, Bytes{0}, Nanos{0}); });
  std::vector<PortPool::Event> events;
  refuses([&] { pool.step(events); });
  pool.begin(0, Bytes{1000}, Nanos{50});
  refuses([&] { pool.begin(0, Bytes{1000}, Nanos{50}); });
  while (events.empty()) pool.step(events);
  refuses([&] { pool.begin(0, Bytes{1000}, Nanos{49}); });
}

}  // namespace
}  // namespace xs
