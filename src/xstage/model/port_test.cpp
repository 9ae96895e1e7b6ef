#include "xstage/model/port.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "xstage/core/bucket.hpp"
#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

constexpr GigaHertz kClock{1.98};

PortParams make_port(double free_issue, double drain, double capacity, double overhead = 0, double latency = 0) {
  PortParams params;
  params.free_issue = {free_issue};
  params.drain = {drain};
  params.capacity = {capacity};
  params.burst_overhead = {overhead};
  params.visible_latency = {latency};
  return params;
}

// The plain form: one stage, all workers served alike, first in, first out.
PortParams plain_port(Dice& dice) {
  return make_port(dice.over_decades(5, 60), dice.over_decades(5, 500), dice.over_decades(1000, 200000),
                   dice.between(0, 200), dice.between(0, 2000));
}

PortParams any_port(Dice& dice) {
  PortParams params = plain_port(dice);
  params.worker_capacity = {dice.over_decades(1000, 200000)};
  params.spread = dice.between(0, 0.8);
  if (dice.whole(0, 1) == 1) params.disorder = dice.between(0.5, 4);
  if (dice.whole(0, 1) == 1) {
    params.engine = params.free_issue * dice.between(0.3, 0.9);
    params.engine_capacity = {dice.over_decades(1000, 40000)};
  }
  if (dice.whole(0, 1) == 1) {
    params.group_fairness = dice.between(0.3, 1.2);
    for (int sm = 0; sm < 16; ++sm) params.groups.push_back(dice.whole(0, 3));
  }
  return params;
}

// What workers want to do: bursts of these bytes with these gaps behind them.
struct Wish {
  Bytes bytes;
  Nanos gap;
};
using Wishes = std::vector<std::vector<Wish>>;  // [worker]

Wishes random_wishes(Dice& dice, int workers, int bursts) {
  Wishes wishes(static_cast<std::size_t>(workers));
  for (auto& worker : wishes) {
    for (int burst = 0; burst < bursts; ++burst) {
      worker.push_back({Bytes{dice.over_decades(500, 50000)}, Nanos{dice.over_decades(1, 3000)}});
    }
  }
  return wishes;
}

Bytes total_of(const Wishes& wishes) {
  Bytes total{0};
  for (const auto& worker : wishes) {
    for (const auto& wish : worker) total += wish.bytes;
  }
  return total;
}

struct Told {
  Nanos begin{0}, issued{0}, source_free{0}, remote_visible{0};
  bool operator==(const Told&) const = default;
};
using Tolds = std::vector<std::vector<Told>>;  // [worker][burst]

// Drives a pool as the simulator does; a worker goes on when its burst has issued. `watch` sees the pool after every
// step.
template <class Watch>
Tolds drive(PortPool& pool, const Wishes& wishes, Watch&& watch) {
  Tolds told(wishes.size());
  std::vector<PortPool::Event> events;
  // Calls are made in the order of time, so that none lies before an event that the pool has taken.
  std::vector<std::pair<Nanos, int>> calls;
  for (int worker = 0; worker < static_cast<int>(wishes.size()); ++worker) calls.push_back({Nanos{0}, worker});
  while (true) {
    const auto next = std::ranges::min_element(calls);
    if (next != calls.end() && next->first <= pool.next_event()) {
      const auto [at, worker] = *next;
      calls.erase(next);
      auto& bursts = told[static_cast<std::size_t>(worker)];
      pool.begin(worker, wishes[static_cast<std::size_t>(worker)][bursts.size()].bytes, at,
                 static_cast<std::int64_t>(bursts.size()));
      bursts.push_back({at});
      continue;
    }
    if (pool.next_event().value == std::numeric_limits<double>::infinity()) return told;
    events.clear();
    pool.step(events);
    watch(pool);
    for (const auto& event : events) {
      const auto w = static_cast<std::size_t>(event.worker), burst = static_cast<std::size_t>(event.tag);
      Told& times = told[w].at(burst);
      EXPECT_EQ(event.begin, times.begin);
      (event.level == Completion::issued        ? times.issued
       : event.level == Completion::source_free ? times.source_free
                                                : times.remote_visible) = event.at;
      if (event.level != Completion::issued || burst + 1 == wishes[w].size()) continue;
      calls.push_back({event.at + wishes[w][burst].gap, event.worker});
    }
  }
}

Tolds drive(PortPool& pool, const Wishes& wishes) {
  return drive(pool, wishes, [](const PortPool&) {});
}

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

// The same fluid in steps of `step`, without events, classes or closed forms.
class SmallSteps {
 public:
  SmallSteps(const PortParams& params, std::vector<double> weights, const Wishes& wishes, Nanos step)
      : params_(params), weights_(std::move(weights)), wishes_(wishes), step_(step), workers_(wishes.size()) {
    for (auto& worker : workers_) begin(worker, {0});
  }

  Tolds run() {
    while (std::ranges::any_of(workers_, [](auto& worker) { return !worker.open.empty(); })) step();
    Tolds told;
    for (auto& worker : workers_) told.push_back(std::move(worker.told));
    return told;
  }

 private:
  struct Open {  // a burst of which not every byte has drained
    std::size_t index;
    Bytes issue, enter;  // left to do
    double left;         // of what is to drain: bytes, or the logarithm of a fraction
    bool entered = false;
  };
  struct Worker {
    Nanos until{0};  // waits till then, for its gap and the overhead
    Bytes held{0};   // in its own stage
    std::vector<Open> open;
    Tolds::value_type told;
  };

  void begin(Worker& worker, Nanos at) {
    const auto index = worker.told.size();
    const Bytes bytes = wishes_[static_cast<std::size_t>(&worker - workers_.data())][index].bytes;
    worker.told.push_back({at});
    worker.open.push_back({index, bytes, bytes, 0});
    worker.until = at + params_.burst_overhead / kClock;
  }

  // What each takes of `room`: by weight, and no more than it wants.
  static std::vector<Bytes> split(const std::vector<Bytes>& wants, const std::vector<double>& weights, Bytes room) {
    std::vector<Bytes> takes(wants.size());
    std::vector<bool> settled(wants.size());
    for (bool changed = true; changed;) {
      changed = false;
      Bytes left = room;
      double sum = 0;
      for (std::size_t i = 0; i < wants.size(); ++i) {
        if (settled[i]) left -= takes[i];
        if (!settled[i]) sum += weights[i];
      }
      for (std::size_t i = 0; i < wants.size(); ++i) {
        if (settled[i]) continue;
        takes[i] = left * (weights[i] / sum);
        if (takes[i] < wants[i]) continue;
        takes[i] = wants[i];
        settled[i] = changed = true;
      }
    }
    return takes;
  }

  void step() {
    const bool staged = params_.engine_capacity > Bytes{0};
    const BytesPerNano free = params_.free_issue * kClock,
                       engine = (staged ? params_.engine : params_.free_issue) * kClock;
    std::vector<Bytes> wants;
    for (auto& worker : workers_) {
      if (staged) issue(worker, min(free * step_, params_.engine_capacity - worker.held));
      Bytes ready = staged ? worker.held : Bytes{0};
      if (!staged && !worker.open.empty() && worker.until <= now_) ready = worker.open.back().issue;
      wants.push_back(min(engine * step_, ready));
    }
    const Bytes drain = params_.drain * step_;
    const Bytes capacity = params_.capacity_of(static_cast<int>(workers_.size()));
    const auto takes = split(wants, weights_, capacity - outstanding_ + drain);
    Bytes entered{0};
    for (const Bytes take : takes) entered += take;
    const Bytes drained = min(drain, outstanding_ + entered);
    const double part = outstanding_ + entered > Bytes{1e-6} ? drained / (outstanding_ + entered) : 1;
    const double passed = params_.disorder == 0 ? drained.value : -std::log1p(-std::min(part, 1 - 1e-12));
    outstanding_ = outstanding_ + entered - drained;
    now_ += step_;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      age(workers_[w], passed);
      if (!staged) issue(workers_[w], takes[w]);
      enter(workers_[w], takes[w]);
    }
  }

  void issue(Worker& worker, Bytes most) {
    if (worker.open.empty() || worker.until > now_ || worker.open.back().issue == Bytes{0}) return;
    Open& burst = worker.open.back();
    const Bytes some = min(most, burst.issue);
    worker.held += some;
    burst.issue -= some;
    if (burst.issue > Bytes{0}) return;
    worker.told[burst.index].issued = now_;
    const auto& wishes = wishes_[static_cast<std::size_t>(&worker - workers_.data())];
    if (burst.index + 1 < wishes.size()) begin(worker, now_ + wishes[burst.index].gap);
  }

  void enter(Worker& worker, Bytes some) {
    worker.held -= some;
    for (Open& burst : worker.open) {
      const Bytes part = min(some, burst.enter);
      burst.enter -= part;
      some -= part;
      if (burst.enter > Bytes{1e-6} || burst.entered) continue;
      burst.entered = true;
      worker.told[burst.index].source_free = now_;
      burst.left = params_.disorder == 0 ? outstanding_.value : params_.disorder;
    }
  }

  // Of those that have entered, some leave.
  void age(Worker& worker, double passed) {
    std::erase_if(worker.open, [&](Open& burst) {
      if (!burst.entered) return false;
      burst.left -= passed;
      if (burst.left > 1e-6) return false;
      worker.told[burst.index].remote_visible = now_ + params_.visible_latency;
      return true;
    });
  }

  const PortParams& params_;
  std::vector<double> weights_;
  const Wishes& wishes_;
  Nanos step_;
  Nanos now_{0};
  Bytes outstanding_{0};
  std::vector<Worker> workers_;
};

TEST(PortPool, WorkersOutOfStepEqualIntegrationInSmallSteps) {
  Dice dice(2);
  int stalls = 0, num_bursts = 0;
  for (int trial = 0; trial < 40; ++trial) {
    auto params = any_port(dice);
    params.groups.clear();
    params.group_fairness = 0;
    // As many classes as workers, or a multiple: then everyone has its own weight.
    const int workers = 2 << dice.whole(0, 2);
    std::vector<double> weights;
    for (int i = 0; i < workers; ++i) weights.push_back(std::exp(params.spread * (2.0 * i / (workers - 1) - 1)));
    const auto wishes = random_wishes(dice, workers, 5);
    PortPool pool(params, kClock, workers);
    const auto told = drive(pool, wishes);
    Nanos end{0};
    for (const auto& worker : told) end = max(end, worker.back().remote_visible);
    const Nanos step = end / 100000;
    const auto expected = SmallSteps(params, weights, wishes, step).run();
    for (std::size_t w = 0; w < wishes.size(); ++w) {
      ASSERT_EQ(told[w].size(), wishes[w].size());
      for (std::size_t burst = 0; burst < told[w].size(); ++burst) {
        const Told &is = told[w][burst], &naive = expected[w][burst];
        SCOPED_TRACE(fmt::format("trial {}, worker {}, burst {}, disorder {}", trial, w, burst, params.disorder));
        // A burst may begin up to a step late, and so may each one before it and beside it.
        const double near = 2e-3 * is.remote_visible.value + 40 * step.value;
        EXPECT_NEAR(is.issued.value, naive.issued.value, near);
        EXPECT_NEAR(is.source_free.value, naive.source_free.value, near);
        EXPECT_NEAR(is.remote_visible.value, naive.remote_visible.value, near);
        stalls += is.issued - is.begin > pool.free_time(wishes[w][burst].bytes) * 1.01;
        ++num_bursts;
      }
    }
  }
  EXPECT_GT(stalls, num_bursts / 4);
  EXPECT_LT(stalls, num_bursts * 3 / 4);
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
