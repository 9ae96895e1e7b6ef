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

PortParams random_port(Dice& dice) {
  return make_port(dice.over_decades(5, 60), dice.over_decades(5, 500), dice.over_decades(1000, 200000),
                   dice.between(0, 200), dice.between(0, 2000));
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

// Drives a pool as the simulator does. `watch` sees the pool after every step.
template <class Watch>
std::vector<PortPool::Issued> drive(PortPool& pool, const Wishes& wishes, Watch&& watch) {
  std::vector<PortPool::Issued> all, ended;
  std::vector<std::size_t> done(wishes.size());
  // Calls are made in the order of time, so that none lies before an event that the pool has taken.
  std::vector<std::pair<Nanos, int>> calls;
  for (int worker = 0; worker < static_cast<int>(wishes.size()); ++worker) calls.push_back({Nanos{0}, worker});
  while (true) {
    const auto next = std::ranges::min_element(calls);
    if (next != calls.end() && next->first <= pool.next_event()) {
      const auto [at, worker] = *next;
      calls.erase(next);
      const auto w = static_cast<std::size_t>(worker);
      pool.begin(worker, wishes[w][done[w]].bytes, at);
      continue;
    }
    if (pool.next_event().value == std::numeric_limits<double>::infinity()) return all;
    ended.clear();
    pool.step(ended);
    watch(pool);
    for (const auto& issued : ended) {
      const auto w = static_cast<std::size_t>(issued.worker);
      const Nanos gap = wishes[w][done[w]].gap;
      if (++done[w] < wishes[w].size()) calls.push_back({issued.end + gap, issued.worker});
      all.push_back(issued);
    }
  }
}

std::vector<PortPool::Issued> drive(PortPool& pool, const Wishes& wishes) {
  return drive(pool, wishes, [](const PortPool&) {});
}

TEST(PortPool, WorkersInStepEqualOneBucketOnItsShare) {
  Dice dice(1);
  int stalls = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto params = random_port(dice);
    const int workers = dice.whole(1, 140);
    const auto one = random_wishes(dice, 1, 100).front();
    PortPool pool(params, kClock);
    const auto issued = drive(pool, Wishes(static_cast<std::size_t>(workers), one));
    ASSERT_EQ(issued.size(), one.size() * static_cast<std::size_t>(workers));

    const auto share = params.share(workers);
    const BucketRates rates{share.free_issue * kClock, share.drain, share.capacity};
    Bucket bucket;
    Nanos now{0};
    for (std::size_t i = 0; i < issued.size(); ++i) {
      const bool first_of_burst = i % static_cast<std::size_t>(workers) == 0;
      const Wish& wish = one[i / static_cast<std::size_t>(workers)];
      if (first_of_burst) {
        bucket.pass(rates, params.burst_overhead / kClock);
        const Nanos issue = bucket.issue(rates, wish.bytes);
        now += params.burst_overhead / kClock + issue;
        stalls += issue > wish.bytes / rates.free_issue * 1.01;
      }
      ASSERT_NEAR(issued[i].end.value, now.value, 1e-9 * now.value);
      const Nanos drained = now + bucket.outstanding / rates.drain + params.visible_latency;
      ASSERT_NEAR(issued[i].remote_visible.value, drained.value, 1e-9 * drained.value);
      if ((i + 1) % static_cast<std::size_t>(workers) == 0) {
        bucket.pass(rates, wish.gap);
        now += wish.gap;
      }
    }
  }
  EXPECT_GT(stalls, 2000);
}

// The same fluid with workers that come and go as they like, in steps of `step`, without events or closed forms.
class SmallSteps {
 public:
  SmallSteps(const PortParams& params, const Wishes& wishes, Nanos step)
      : rate_(params.free_issue * kClock), params_(params), wishes_(wishes), step_(step), workers_(wishes.size()) {}

  // [worker][burst] time from the call to the end.
  std::vector<std::vector<Nanos>> run() {
    for (auto& worker : workers_) worker.until = params_.burst_overhead / kClock;
    while (std::ranges::any_of(workers_, [this](const auto& worker) { return !finished(worker); })) step();
    std::vector<std::vector<Nanos>> issues;
    for (auto& worker : workers_) issues.push_back(std::move(worker.issues));
    return issues;
  }

 private:
  struct Worker {
    Nanos called{0};
    Nanos until{0};  // waits till then, for its gap and the overhead
    Bytes stored{0};
    std::vector<Nanos> issues;
  };

  bool finished(const Worker& worker) const { return worker.issues.size() == wishes_.front().size(); }
  bool storing(const Worker& worker) const { return !finished(worker) && worker.until <= now_; }

  void step() {
    const auto count = static_cast<double>(std::ranges::count_if(workers_, [this](auto& w) { return storing(w); }));
    const Bytes drain = params_.drain * step_, wanted = count * rate_ * step_;
    const Bytes room = min(wanted, params_.capacity - outstanding_ + drain);
    Bytes entered{0};
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (storing(workers_[w])) entered += store(workers_[w], wishes_[w], room / count);
    }
    outstanding_ = max(Bytes{0}, outstanding_ + entered - drain);
    now_ += step_;
  }

  // Up to `most` bytes of the worker's burst; returns how many.
  Bytes store(Worker& worker, const std::vector<Wish>& wishes, Bytes most) {
    const Wish& wish = wishes[worker.issues.size()];
    const Bytes left = wish.bytes - worker.stored;
    worker.stored += most;
    if (most < left) return most;
    const Nanos end = now_ + step_ * (left / most);
    worker.issues.push_back(end - worker.called);
    worker.stored = {0};
    worker.called = end + wish.gap;
    worker.until = worker.called + params_.burst_overhead / kClock;
    return left;
  }

  BytesPerNano rate_;
  const PortParams& params_;
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
    const auto params = random_port(dice);
    const auto wishes = random_wishes(dice, dice.whole(2, 12), 6);
    PortPool pool(params, kClock);
    const auto issued = drive(pool, wishes);
    const Nanos step = issued.back().end / 200000;
    const auto expected = SmallSteps(params, wishes, step).run();
    std::vector<std::size_t> next(wishes.size());
    for (const auto& burst : issued) {
      const auto w = static_cast<std::size_t>(burst.worker);
      const auto index = next[w]++;
      const Nanos time = burst.end - burst.begin;
      // A burst may begin up to a step late, and so may each one before it and beside it.
      EXPECT_NEAR(time.value, expected[w][index].value, 2e-3 * time.value + 20 * step.value);
      stalls += time > pool.free_time(wishes[w][index].bytes) * 1.01;
      ++num_bursts;
    }
  }
  EXPECT_GT(stalls, num_bursts / 4);
  EXPECT_LT(stalls, num_bursts * 3 / 4);
}

TEST(PortPool, EveryByteDrainsOnceAndCapacityIsKept) {
  Dice dice(3);
  for (int trial = 0; trial < 100; ++trial) {
    const auto params = random_port(dice);
    const auto wishes = random_wishes(dice, dice.whole(1, 20), 30);
    Bytes wanted{0};
    for (const auto& worker : wishes) {
      for (const auto& wish : worker) wanted += wish.bytes;
    }
    PortPool pool(params, kClock);
    const auto issued = drive(pool, wishes, [&](const PortPool& now) {
      ASSERT_GE(now.outstanding(), Bytes{0});
      ASSERT_LE(now.outstanding(), params.capacity);
    });
    EXPECT_EQ(issued.size(), wishes.size() * wishes.front().size());
    EXPECT_NEAR((pool.busy() * params.drain.value).value, wanted.value, 1e-9 * wanted.value);
  }
}

TEST(PortPool, BurstIsVisibleAfterItsEndAndInTheOrderOfEnds) {
  Dice dice(4);
  for (int trial = 0; trial < 100; ++trial) {
    const auto params = random_port(dice);
    PortPool pool(params, kClock);
    const auto issued = drive(pool, random_wishes(dice, dice.whole(1, 20), 30));
    for (std::size_t i = 0; i < issued.size(); ++i) {
      EXPECT_GE(issued[i].end - issued[i].begin, pool.free_time({0}));
      EXPECT_GE(issued[i].remote_visible, issued[i].end + params.visible_latency);
      EXPECT_LE(issued[i].remote_visible,
                issued[i].end + params.visible_latency + params.capacity / params.drain * 1.001);
      if (i == 0) continue;
      EXPECT_GE(issued[i].end, issued[i - 1].end);
      EXPECT_GE(issued[i].remote_visible.value, issued[i - 1].remote_visible.value * (1 - 1e-12));
    }
  }
}

TEST(PortPool, NoBurstIsFasterThanFreeNorThanTheDrain) {
  Dice dice(5);
  for (int trial = 0; trial < 100; ++trial) {
    const auto params = random_port(dice);
    const auto wishes = random_wishes(dice, dice.whole(1, 20), 30);
    PortPool pool(params, kClock);
    std::vector<std::size_t> next(wishes.size());
    Bytes total{0};
    Nanos end{0};
    for (const auto& issued : drive(pool, wishes)) {
      const auto w = static_cast<std::size_t>(issued.worker);
      const Bytes bytes = wishes[w][next[w]++].bytes;
      EXPECT_GE((issued.end - issued.begin).value, pool.free_time(bytes).value - 1e-9 * issued.end.value);
      total += bytes;
      end = issued.end;
    }
    EXPECT_LE(total, (params.drain * end + params.capacity) * (1 + 1e-9));
  }
}

TEST(PortPool, WorkersOfEqualBurstsEndTogetherWhoeverCalledFirst) {
  PortPool pool(make_port(20, 100, 10000), kClock);
  const auto issued = drive(pool, Wishes(5, {{Bytes{30000}, Nanos{0}}}));
  ASSERT_EQ(issued.size(), 5u);
  for (int worker = 0; worker < 5; ++worker) {
    EXPECT_EQ(issued[static_cast<std::size_t>(worker)].worker, worker);
    EXPECT_NEAR(issued[static_cast<std::size_t>(worker)].end.value, (150000 - 10000) / 100.0, 1e-6);
  }
}

TEST(PortPool, RefusesWhatCannotBe) {
  const auto params = make_port(20, 100, 10000);
  const auto refuses = [](auto&& call) { expect_error(ErrorKind::internal, call, {"PortPool"}); };
  PortPool pool(params, kClock);
  refuses([&] { pool.begin(0, Bytes{0}, Nanos{0}); });
  std::vector<PortPool::Issued> ended;
  refuses([&] { pool.step(ended); });
  pool.begin(0, Bytes{1000}, Nanos{50});
  pool.step(ended);
  pool.step(ended);
  ASSERT_EQ(ended.size(), 1u);
  refuses([&] { pool.begin(0, Bytes{1000}, Nanos{49}); });
}

}  // namespace
}  // namespace xs
