#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "xstage/core/test_support.hpp"
#include "xstage/model/port.hpp"

// For tests of PortPool: random ports, random wishes, and a driver like the simulator.

namespace xs {

inline constexpr GigaHertz kClock{1.98};

inline PortParams make_port(double free_issue, double drain, double capacity, double overhead = 0, double latency = 0) {
  PortParams params;
  params.free_issue = {free_issue};
  params.drain = {drain};
  params.capacity = {capacity};
  params.burst_overhead = {overhead};
  params.visible_latency = {latency};
  return params;
}

// The plain form: one stage, all workers served alike, first in, first out.
inline PortParams plain_port(Dice& dice) {
  return make_port(dice.over_decades(5, 60), dice.over_decades(5, 500), dice.over_decades(1000, 200000),
                   dice.between(0, 200), dice.between(0, 2000));
}

inline PortParams any_port(Dice& dice) {
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

inline Wishes random_wishes(Dice& dice, int workers, int bursts) {
  Wishes wishes(static_cast<std::size_t>(workers));
  for (auto& worker : wishes) {
    for (int burst = 0; burst < bursts; ++burst) {
      worker.push_back({Bytes{dice.over_decades(500, 50000)}, Nanos{dice.over_decades(1, 3000)}});
    }
  }
  return wishes;
}

inline Bytes total_of(const Wishes& wishes) {
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

inline Tolds drive(PortPool& pool, const Wishes& wishes) {
  return drive(pool, wishes, [](const PortPool&) {});
}

}  // namespace xs
