#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "xstage/plan/check.hpp"
#include "xstage/plan/random_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Laws of every simulated MoE layer, on random problems and machines.

namespace xs {
namespace {

struct Case {
  RandomProblem random;
  Schedule schedule;
  SimMachine machine;
  SimOptions options;
};

// From links that hide everything to links that everything waits for.
Case random_case(std::uint64_t seed) {
  Dice dice(seed);
  PortParams port;
  port.burst_overhead = {static_cast<double>(dice.whole(0, 200))};
  port.free_issue = {static_cast<double>(dice.whole(1, 64))};
  port.drain = {static_cast<double>(dice.whole(1, 400))};
  port.capacity = {static_cast<double>(dice.whole(64, 20000))};
  port.visible_latency = {static_cast<double>(dice.whole(0, 1000))};
  const SimMachine machine{
      {1.75}, {static_cast<double>(dice.whole(1, 4096))}, {static_cast<double>(dice.whole(1, 100))}, port};
  auto random = random_problem(seed);
  auto schedule = random.problem.schedule(random_order(seed));
  const SimOptions options{dice.whole(1, 7), chance(dice, 0.5) ? Claim::fixed : Claim::counter, true};
  return {std::move(random), std::move(schedule), machine, options};
}

// The same with everything that the simulator knows: unequal workers, copies, pulls, late and slow ranks.
Case random_rich_case(std::uint64_t seed) {
  Case one = random_case(seed);
  Dice dice(seed + 1000);
  one.machine.port.disorder = chance(dice, 0.5) ? dice.between(0.1, 3) : 0;
  one.machine.port.group_fairness = dice.between(0, 1);
  one.machine.port.spread = dice.between(0, 0.5);
  one.machine.port.groups = {0, 0, 1, 0, 1};
  one.machine.copy_engine = one.machine.port;
  one.machine.own_raise = {static_cast<double>(dice.whole(0, 500))};
  one.machine.task_overhead = {static_cast<double>(dice.whole(0, 500))};
  one.machine.counter_claim = {static_cast<double>(dice.whole(0, 500))};
  one.options.tiles_in_flight = dice.whole(1, 4);
  for (auto& rank : one.schedule.ranks) {
    one.options.ranks.push_back({{dice.between(0, 20000)}, dice.between(0.3, 1.5)});
    for (std::size_t claim = 0; claim < rank.tasks.size(); ++claim) {
      if (!chance(dice, 0.4)) continue;
      if (rank.tasks[claim].kind == TaskKind::dispatch) rank.work[claim].route = Route::pull;
      if (rank.tasks[claim].kind == TaskKind::linear2) rank.work[claim].route = Route::copy;
    }
  }
  return one;
}

// Calls body(case, timeline) for 200 of them.
template <class Body>
void for_cases(Case (*make_case)(std::uint64_t seed), Body&& body) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto one = make_case(seed);
    SCOPED_TRACE(fmt::format("{}, {} workers", one.random.what, one.options.workers_per_rank));
    body(one, simulate(one.schedule, one.machine, one.options));
    if (testing::Test::HasFailure()) return;
  }
}

template <class Body>
void for_random_cases(Body&& body) {
  for_cases(random_case, body);
}

template <class Body>
void for_rich_cases(Body&& body) {
  for_cases(random_rich_case, body);
}

// What a rank's tasks cost while nothing stalls.
struct Costs {
  double products = 0;
  double operands = 0;  // beyond the products
  double stores = 0;
  double remote_bytes = 0;
};

Costs costs_of(const RankSchedule& schedule, int rank, const SimMachine& machine) {
  const double clock = machine.sm_clock.value, store_rate = machine.port.free_issue.value * clock;
  Costs costs;
  for (std::size_t claim = 0; claim < schedule.tasks.size(); ++claim) {
    const double products = schedule.work[claim].flops / machine.rate.value / clock;
    costs.products += products;
    costs.operands += std::max(0.0, schedule.work[claim].load_bytes / machine.memory.value - products);
    double remote = 0;
    for (const auto& send : schedule.sends[claim]) {
      costs.stores += static_cast<double>(send.bytes) / store_rate;
      if (send.rank != rank) remote += static_cast<double>(send.bytes);
    }
    if (remote > 0) costs.stores += machine.port.burst_overhead.value / clock;
    costs.remote_bytes += remote;
  }
  return costs;
}

TEST(SimulateMoe, TakesAtLeastTheWorkOverItsWorkersAndTheBytesOverTheirLink) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    for (int rank = 0; rank < timeline.num_ranks; ++rank) {
      const auto costs = costs_of(one.schedule.ranks[static_cast<std::size_t>(rank)], rank, one.machine);
      const double work = costs.products + costs.operands + costs.stores;
      EXPECT_GE(timeline.makespan.value * (1 + 1e-12), work / one.options.workers_per_rank);
      EXPECT_GE(timeline.makespan.value * (1 + 1e-12), costs.remote_bytes / one.machine.port.drain.value);
    }
  });
}

TEST(SimulateMoe, TheLinkIsBusyForItsBytesOverItsRate) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    ASSERT_EQ(timeline.link_busy.size(), one.schedule.ranks.size());
    for (int rank = 0; rank < timeline.num_ranks; ++rank) {
      const auto costs = costs_of(one.schedule.ranks[static_cast<std::size_t>(rank)], rank, one.machine);
      const double drained = costs.remote_bytes / one.machine.port.drain.value;
      EXPECT_NEAR(timeline.link_busy[static_cast<std::size_t>(rank)].value, drained, 1e-9 * drained);
    }
  });
}

TEST(SimulateMoe, ALinkHidesNoMoreThanItsBusyTimeAndTheWorkOfItsRank) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    ASSERT_EQ(timeline.link_hidden.size(), one.schedule.ranks.size());
    for (int rank = 0; rank < timeline.num_ranks; ++rank) {
      const auto costs = costs_of(one.schedule.ranks[static_cast<std::size_t>(rank)], rank, one.machine);
      const auto work = Nanos{(costs.products + costs.operands) / one.options.workers_per_rank};
      const auto busy = timeline.link_busy[static_cast<std::size_t>(rank)];
      const auto hidden = timeline.link_hidden[static_cast<std::size_t>(rank)];
      EXPECT_GE(hidden, Nanos{0});
      EXPECT_LE(hidden, min(busy, work) * (1 + 1e-9));
      // What is not hidden had its time while fewer workers computed.
      EXPECT_LE(busy - hidden, timeline.makespan * (1 + 1e-9) - work);
    }
  });
}

TEST(SimulateMoe, SpansNameTheClaimsTaskAndClaimsOfAWorkerGrow) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    std::map<std::pair<int, int>, std::int64_t> last;
    for (const auto& span : timeline.spans) {
      EXPECT_EQ(span.task,
                one.schedule.ranks[static_cast<std::size_t>(span.rank)].tasks[static_cast<std::size_t>(span.claim)]);
      auto& before = last[{span.rank, span.worker}];
      EXPECT_GE(span.claim, before);
      before = span.claim;
      if (one.options.claim == Claim::fixed) {
        EXPECT_EQ(span.worker, span.claim % one.options.workers_per_rank);
      }
    }
  });
}

TEST(SimulateMoe, SpansAddUpToWhatTheTasksCost) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    for (int rank = 0; rank < timeline.num_ranks; ++rank) {
      const auto costs = costs_of(one.schedule.ranks[static_cast<std::size_t>(rank)], rank, one.machine);
      std::map<SpanKind, double> sums;
      for (const auto& span : timeline.spans) {
        if (span.rank == rank) sums[span.kind] += (span.end - span.begin).value;
      }
      const double scale = 1e-9 * timeline.makespan.value;
      EXPECT_NEAR(sums[SpanKind::compute], costs.products + costs.stores, scale);
      EXPECT_NEAR(sums[SpanKind::operand_stall], costs.operands, scale);
    }
  });
}

TEST(SimulateMoe, NoTaskBeginsBeforeWhatItReadsIsThere) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    // Of every task: when its work begins, when its last store has issued.
    std::map<std::pair<int, std::int64_t>, std::pair<double, double>> times;
    for (const auto& span : timeline.spans) {
      const auto begin = span.kind == SpanKind::dependency ? span.end.value : span.begin.value;
      times.try_emplace({span.rank, span.claim}, begin, 0).first->second.second = span.end.value;
    }
    std::map<std::pair<int, std::int32_t>, double> complete;  // (rank, flag)
    for (const auto& [key, time] : times) {
      const auto& own = one.schedule.ranks[static_cast<std::size_t>(key.first)];
      for (const auto& raise : own.raises[static_cast<std::size_t>(key.second)]) {
        const double latency = raise.rank == key.first ? 0 : one.machine.port.visible_latency.value;
        auto& at = complete[{raise.rank, raise.flag}];
        at = std::max(at, time.second + latency);
      }
    }
    for (const auto& [key, time] : times) {
      for (const auto& wait :
           one.schedule.ranks[static_cast<std::size_t>(key.first)].waits[static_cast<std::size_t>(key.second)]) {
        EXPECT_GE(time.first, (complete[{key.first, wait.flag}])) << "rank " << key.first << ", claim " << key.second;
      }
    }
  });
}

TEST(SimulateMoe, LevelsStayWithinThePortAndInOrderOfTime) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    Nanos before{0};
    for (const auto& level : timeline.levels) {
      EXPECT_GE(level.at, before);
      EXPECT_GE(level.outstanding, Bytes{0});
      EXPECT_LE(level.outstanding, one.machine.port.capacity);
      before = level.at;
    }
    const bool remote = std::ranges::any_of(timeline.link_busy, [](Nanos busy) { return busy > Nanos{0}; });
    EXPECT_EQ(timeline.levels.empty(), !remote);
    SimOptions unseen = one.options;
    unseen.record_levels = false;
    EXPECT_TRUE(simulate(one.schedule, one.machine, unseen).levels.empty());
  });
}

bool same(const Timeline& a, const Timeline& b, double scale) {
  const auto times = [&](Nanos x, Nanos y) { return x == y * scale; };
  const auto spans = [&](const Span& x, const Span& y) {
    return x.rank == y.rank && x.worker == y.worker && x.kind == y.kind && x.task == y.task && x.claim == y.claim &&
           times(x.begin, y.begin) && times(x.end, y.end);
  };
  const auto levels = [&](const PortLevel& x, const PortLevel& y) {
    return x.rank == y.rank && times(x.at, y.at) && x.outstanding == y.outstanding;
  };
  return a.num_ranks == b.num_ranks && a.workers_per_rank == b.workers_per_rank && times(a.makespan, b.makespan) &&
         std::ranges::equal(a.spans, b.spans, spans) && std::ranges::equal(a.levels, b.levels, levels) &&
         std::ranges::equal(a.link_busy, b.link_busy, times) && std::ranges::equal(a.link_hidden, b.link_hidden, times);
}

TEST(SimulateMoe, TheSameInputGivesTheSameTimeline) {
  const auto body = [](const Case& one, const Timeline& timeline) {
    const auto again = simulate(one.schedule, one.machine, one.options);
    EXPECT_TRUE(same(timeline, again, 1));
    EXPECT_EQ(timeline.totals, again.totals);
  };
  for_random_cases(body);
  for_rich_cases(body);
}

TEST(SimulateMoe, TotalsAreTheSumsOfTheSpans) {
  for_rich_cases([](const Case&, const Timeline& timeline) {
    ASSERT_EQ(timeline.totals.size(), static_cast<std::size_t>(timeline.num_ranks));
    auto left = timeline.totals;
    for (const auto& span : timeline.spans) {
      left[static_cast<std::size_t>(span.rank)][static_cast<std::size_t>(span.kind)] += span.begin - span.end;
    }
    for (const auto& rank : left) {
      for (const Nanos& rest : rank) EXPECT_NEAR(rest.value, 0, 1e-9 * timeline.makespan.value);
    }
  });
}

TEST(SimulateMoe, WithoutSpansTheTimesAreTheSame) {
  for_rich_cases([](const Case& one, const Timeline& timeline) {
    SimOptions unseen = one.options;
    unseen.record_spans = false;
    const auto totals_alone = simulate(one.schedule, one.machine, unseen);
    EXPECT_TRUE(totals_alone.spans.empty());
    EXPECT_EQ(totals_alone.makespan, timeline.makespan);
    EXPECT_EQ(totals_alone.totals, timeline.totals);
    EXPECT_EQ(totals_alone.link_busy, timeline.link_busy);
    EXPECT_EQ(totals_alone.link_hidden, timeline.link_hidden);
  });
}

TEST(SimulateMoe, SharesOfARankSumToOneAndAverageToThoseOfAll) {
  for_rich_cases([](const Case&, const Timeline& timeline) {
    Breakdown mean;
    for (const auto& rank : breakdown_by_rank(timeline)) {
      EXPECT_NEAR(std::accumulate(rank.share.begin(), rank.share.end(), rank.tail), 1, 1e-9);
      for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind)
        mean.share[kind] += rank.share[kind] / timeline.num_ranks;
      mean.tail += rank.tail / timeline.num_ranks;
      mean.link_busy += rank.link_busy / timeline.num_ranks;
    }
    const auto all = breakdown(timeline);
    for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) EXPECT_NEAR(all.share[kind], mean.share[kind], 1e-12);
    EXPECT_NEAR(all.tail, mean.tail, 1e-12);
    EXPECT_NEAR(all.link_busy, mean.link_busy, 1e-12);
  });
}

TEST(SimulateMoe, EveryByteDrainsOverTheLinkThatItLeavesBy) {
  for_rich_cases([](const Case& one, const Timeline& timeline) {
    std::vector<double> bytes(timeline.link_busy.size());
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const auto& own = one.schedule.ranks[rank];
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        for (const auto& send : own.sends[claim]) {
          const auto peer = static_cast<std::size_t>(send.rank);
          if (peer == rank) continue;
          bytes[own.work[claim].route == Route::pull ? peer : rank] += static_cast<double>(send.bytes);
        }
      }
    }
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const double drained = bytes[rank] / one.machine.port.drain.value;
      EXPECT_NEAR(timeline.link_busy[rank].value, drained, 1e-6 * drained) << "rank " << rank;
    }
  });
}

TEST(SimulateMoe, WorkersFollowTheirSpansFromTheStartOfTheirRank) {
  for_rich_cases([](const Case& one, const Timeline& timeline) {
    std::map<std::pair<int, int>, Nanos> since;
    for (const auto& span : timeline.spans) {
      const Nanos start = one.options.ranks[static_cast<std::size_t>(span.rank)].start;
      Nanos& end = since.try_emplace({span.rank, span.worker}, start).first->second;
      EXPECT_EQ(span.begin, end);
      EXPECT_GT(span.end, span.begin);
      EXPECT_LE(span.end, timeline.makespan);
      end = span.end;
    }
  });
}

// Powers of two do not round, so not even the last bit may differ.
TEST(SimulateMoe, OnAMachineFourTimesAsFastEverythingTakesAQuarterOfTheTime) {
  for_random_cases([](const Case& one, const Timeline& timeline) {
    SimMachine fast = one.machine;
    fast.sm_clock = fast.sm_clock * 4;
    fast.memory = fast.memory * 4;
    fast.port.drain = fast.port.drain * 4;
    fast.port.visible_latency = fast.port.visible_latency / 4;
    EXPECT_TRUE(same(simulate(one.schedule, fast, one.options), timeline, 0.25));
  });
}

// simulate() itself fails if a task is left over.
TEST(SimulateMoe, EveryOrderFinishesUnderBothClaims) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto one = random_case(seed);
    for (const auto& order : orders_of(one.random.problem.counts(0))) {
      const auto schedule = one.random.problem.schedule(order);
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        SCOPED_TRACE(one.random.what + ", " + to_string(order));
        EXPECT_NO_THROW(simulate(schedule, one.machine, {one.options.workers_per_rank, claim, false}));
      }
    }
  }
}

TEST(SimulateMoe, OneWorkerOnOneRankNeverWaits) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto one = random_case(seed);
    const auto& problem = one.random.problem;
    const auto alone =
        make_problem(problem.shape(), problem.tiling(), 1, one.random.routing).schedule(random_order(seed));
    const auto timeline = simulate(alone, one.machine, {1, one.options.claim, false});
    const auto costs = costs_of(alone.ranks[0], 0, one.machine);
    const double work = costs.products + costs.operands + costs.stores;
    EXPECT_NEAR(timeline.makespan.value, work, 1e-9 * work) << one.random.what;
  }
}

}  // namespace
}  // namespace xs
