#include "xstage/signal/signals.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"
#include "xstage/signal/signal_world.hpp"

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;

void sleep_up_to(std::chrono::microseconds most, const RandomKey& key, std::uint64_t index) {
  std::this_thread::sleep_for(most * key.uniform(index));
}

struct Case {
  const char* name;
  int num_ranks;
  int num_flags;
  int num_epochs;
  std::uint32_t first_epoch;
  std::chrono::microseconds max_delay;
  Word first_arrival = 0;
  std::optional<HostPortOptions> port = {};
};

// Small and slow enough to be full, and in no order.
const HostPortOptions kReordered{.drain = {0.05}, .capacity = 64, .visible_latency = {30e3}, .reorder_seed = 3};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class SignalCases : public testing::TestWithParam<std::tuple<Case, RanksAre>> {};

// All ranks raise all flags of all ranks in every epoch, each after its payload; every reader must find the payload of
// its own epoch from every source.
TEST_P(SignalCases, PayloadIsThereWhenTheFlagIs) {
  const auto& [one, ranks_are] = GetParam();
  SignalWorld fixture(one.num_ranks, one.num_flags, ranks_are, one.port);
  SignalOptions options;
  options.first_epoch = one.first_epoch;
  options.first_arrival = one.first_arrival;
  fixture.run(options, [&fixture, &one = one](Rank rank, Signals& signals) {
    const RandomKey key{7, static_cast<std::uint64_t>(rank.rank())};
    std::uint64_t draw = 0;
    for (int epoch = 0; epoch < one.num_epochs; ++epoch) {
      for (int flag = 0; flag < one.num_flags; ++flag) {
        for (int i = 1; i <= one.num_ranks; ++i) {
          const int peer = (rank.rank() + i) % one.num_ranks;
          fixture.put(rank, peer, flag, 1000 * epoch + flag);
          if (one.max_delay.count() > 0) sleep_up_to(one.max_delay, key, draw++);
          signals.raise(peer, flag, flag + 1);
        }
      }
      for (int flag = one.num_flags - 1; flag >= 0; --flag) {
        signals.wait(flag, std::int64_t{one.num_ranks} * (flag + 1));
        for (int source = 0; source < one.num_ranks; ++source) {
          check(fixture.received(rank, source, flag) == 1000 * epoch + flag, "rank {} reads {} of rank {} in epoch {}",
                rank.rank(), fixture.received(rank, source, flag), source, epoch);
        }
      }
      signals.close_epoch();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    As, SignalCases,
    testing::Combine(testing::Values(Case{"one_rank", 1, 3, 20, 1, {}}, Case{"two_ranks", 2, 1, 300, 1, {}},
                                     Case{"four_ranks", 4, 3, 100, 1, {}}, Case{"eight_ranks", 8, 2, 50, 1, {}},
                                     Case{"delays", 4, 2, 20, 1, std::chrono::microseconds(200)},
                                     Case{"epoch_wraps", 3, 2, 20, 0xfffffff8u, {}},
                                     Case{"epoch_sign_bit", 3, 2, 20, 0x7ffffff8u, {}},
                                     Case{"arrivals_sign_bit", 3, 2, 20, 1, {}, (Word{1} << 63) - 5},
                                     Case{"arrivals_wrap", 3, 2, 20, 1, {}, ~Word{4}},
                                     Case{"reordered_port", 4, 3, 30, 1, {}, 0, kReordered}),
                     testing::Values(RanksAre::threads, RanksAre::processes)),
    [](const auto& one) {
      return std::string(std::get<0>(one.param).name) + "_as_" + to_string(std::get<1>(one.param));
    });

// What a passing wait must not do: accept less, or another epoch's raises.
TEST(Signals, AWaitNeedsTheWholeCountOfItsOwnEpoch) {
  SignalWorld fixture(1, 1);
  SignalOptions options;
  options.timeout = Nanos{20e6};
  EXPECT_THROW(fixture.run(options,
                           [](Rank, Signals& signals) {
                             signals.raise(0, 0, 4);
                             signals.wait(0, 5);
                           }),
               Error);
  SignalWorld again(1, 1);
  EXPECT_THROW(again.run(options,
                         [](Rank, Signals& signals) {
                           signals.raise(0, 0, 5);
                           signals.wait(0, 5);
                           signals.close_epoch();
                           signals.wait(0, 1);
                         }),
               Error);
}

TEST(Signals, AnExpiredWaitExplainsItselfAndStopsEveryRank) {
  SignalWorld fixture(4, 2);
  SignalOptions options;
  options.timeout = Nanos{0.2e9};
  options.flag_name = [](int flag) { return flag == 1 ? "arrived[12]" : "other"; };
  std::atomic<int> stopped = 0;
  const auto begin = Clock::now();
  try {
    fixture.run(options, [&](Rank rank, Signals& signals) {
      try {
        if (rank.rank() == 2) {
          signals.raise(2, 1, 3);
          signals.wait(1, 8);
        }
        signals.wait(0, 1);  // nobody raises this one either
      } catch (const Error& error) {
        ++stopped;
        EXPECT_EQ(error.kind(), ErrorKind::timeout);
        throw;
      }
    });
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("expected"), std::string::npos) << text;
    EXPECT_NE(text.find("seen"), std::string::npos) << text;
  }
  EXPECT_EQ(stopped, 4);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST(Signals, TheReportNamesFlagRankExpectedAndSeen) {
  SignalWorld fixture(2, 2);
  SignalOptions options;
  options.timeout = Nanos{0.05e9};
  options.flag_name = [](int flag) { return fmt::format("arrived[{}]", flag); };
  try {
    fixture.run(options, [&](Rank rank, Signals& signals) {
      if (rank.rank() == 0) return;
      signals.raise(1, 1, 3);
      signals.wait(1, 8);
    });
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const auto* part : {"rank 1", "arrived[1]", "expected 8", "seen 3"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Signals, AMissingRankIsNamedByTheClosingBarrier) {
  SignalWorld fixture(3, 1);
  SignalOptions options;
  options.timeout = Nanos{0.05e9};
  try {
    fixture.run(options, [&](Rank rank, Signals& signals) {
      if (rank.rank() != 1) signals.close_epoch();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("arrival of rank 1"), std::string::npos) << error.what();
  }
}

TEST(Signals, AbortWakesSleepersAtOnceWithTheReason) {
  SignalWorld fixture(3, 1);
  const auto begin = Clock::now();
  try {
    fixture.run({}, [&](Rank rank, Signals& signals) {
      if (rank.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        signals.abort("disk full");
        return;
      }
      signals.wait(0, 1);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("disk full"), std::string::npos) << error.what();
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));  // not the 30 s of the wait
}

TEST(Signals, OneRankMayBeLate) {
  SignalWorld fixture(3, 1);
  fixture.run({}, [&](Rank rank, Signals& signals) {
    if (rank.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int peer = 0; peer < 3; ++peer) signals.raise(peer, 0, 1);
    signals.wait(0, 3);
    signals.close_epoch();
  });
}

}  // namespace
}  // namespace xs
