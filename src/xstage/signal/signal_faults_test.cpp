#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "xstage/core/random.hpp"
#include "xstage/core/test_support.hpp"
#include "xstage/signal/signal_world.hpp"

// What happens when ranks disagree, are late, lose a raise, or die.

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;

class SignalFaults : public testing::TestWithParam<RanksAre> {
 protected:
  SignalWorld make(int num_ranks, int num_flags = 1) const { return {num_ranks, num_flags, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(As, SignalFaults, testing::Values(RanksAre::threads, RanksAre::processes),
                         [](const auto& one) { return to_string(one.param); });

SignalOptions short_timeout(double milliseconds = 50) {
  SignalOptions options;
  options.timeout = Nanos{milliseconds * 1e6};
  return options;
}

// Every rank raises flag 0 of every rank after its payload, waits, and reads what is for its epoch.
void exchange(const SignalWorld& world, Rank rank, Signals& signals, std::int64_t value) {
  for (int peer = 0; peer < rank.num_ranks(); ++peer) {
    world.put(rank, peer, 0, value);
    signals.raise(peer, 0, 1);
  }
  signals.wait(0, rank.num_ranks());
  for (int source = 0; source < rank.num_ranks(); ++source) {
    check(world.received(rank, source, 0) == value, "rank {} read {} instead of {}", rank.rank(),
          world.received(rank, source, 0), value);
  }
  signals.close_epoch();
}

TEST_P(SignalFaults, RanksThatAgreeGoOnAlsoAgainAndAgain) {
  auto world = make(5);
  world.run({}, [&](Rank rank, Signals& signals) {
    for (int i = 0; i < 20; ++i) {
      const Term terms[] = {{"hidden", std::to_string(64 + i)}, {"dtype", "bf16"}};
      signals.agree(terms);
      exchange(world, rank, signals, i);
    }
  });
}

TEST_P(SignalFaults, ARankWithAnotherShapeOrDtypeIsNamedOnEveryRank) {
  auto world = make(4);
  world.run(short_timeout(20e3), [&](Rank rank, Signals& signals) {
    const Term terms[] = {{"hidden", rank.rank() == 2 ? "4096" : "7168"}, {"dtype", rank.rank() == 3 ? "fp8" : "bf16"}};
    try {
      signals.agree(terms);
    } catch (const Error& error) {
      const std::string text = error.what();
      for (const char* word : {"rank 2 has hidden 4096", "rank 0 has hidden 7168", "rank 3 has dtype fp8"}) {
        check(text.find(word) != std::string::npos, "rank {}: {} lacks {}", rank.rank(), text, word);
      }
      check(error.kind() == ErrorKind::usage && text.find("rank 1") == std::string::npos, "{}", text);
      exchange(world, rank, signals, 7);  // nothing is poisoned
      return;
    }
    fail(ErrorKind::internal, "rank {} agreed", rank.rank());
  });
}

TEST_P(SignalFaults, ARankThatDoesNotComeToAgreeIsNamed) {
  auto world = make(3);
  expect_error(ErrorKind::timeout,
               [&] {
                 world.run(short_timeout(500), [](Rank rank, Signals& signals) {
                   if (rank.rank() == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                   signals.agree({});
                 });
               },
               {"agreement, arrival of rank 1"});
}

TEST_P(SignalFaults, ADroppedRaiseIsATimeoutThatNamesTheFlag) {
  auto world = make(4);
  auto options = short_timeout(1000);
  options.faults.drop_raise = {2, 1};  // rank 2's to rank 1
  options.flag_name = [](int) { return "arrived[7]"; };
  expect_error(ErrorKind::timeout,
               [&] { world.run(options, [&](Rank rank, Signals& signals) { exchange(world, rank, signals, 1); }); },
               {"rank 1 waited", "arrived[7]", "expected 4, seen 3", "all ranks stopped"});
}

TEST_P(SignalFaults, AReportSaysWhatTheOthersWaitFor) {
  auto world = make(3, 2);
  expect_error(ErrorKind::timeout,
               [&] {
                 world.run(short_timeout(1000), [](Rank rank, Signals& signals) {
                   if (rank.rank() == 0) signals.wait(1, 1);
                   signals.close_epoch();
                 });
               },
               {"rank 0 waited", "flag 1", "rank 1 waits for arrival of rank 0, rank 2 waits for arrival of rank 0"});
}

TEST_P(SignalFaults, ALateRankIsWaitedForWithinTheTimeout) {
  auto world = make(3);
  SignalOptions options;
  options.faults.late = {{}, Nanos{80e6}};
  const auto begin = Clock::now();
  world.run(options, [&](Rank rank, Signals& signals) { exchange(world, rank, signals, 1); });
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(80));
}

TEST_P(SignalFaults, EveryCallAfterATimeoutThrowsItsReport) {
  auto world = make(2);
  expect_usage_error(
      [&] {
        world.run(short_timeout(), [&](Rank rank, Signals& signals) {
          expect_error(ErrorKind::timeout, [&] { signals.wait(0, 1); }, {"waited"});
          const auto still = [&](const std::function<void()>& call) {
            try {
              call();
            } catch (const Error& error) {
              return std::string(error.what()).find("waited") != std::string::npos;
            }
            return false;
          };
          check(still([&] { signals.raise(0, 0, 1); }), "raise goes on");
          check(still([&] { signals.wait(0, 0); }), "a wait that is reached goes on");
          check(still([&] { signals.close_epoch(); }), "close_epoch goes on");
          check(still([&] { signals.agree({}); }), "agree goes on");
          fail(ErrorKind::usage, "rank {} is poisoned", rank.rank());
        });
      },
      {"is poisoned"});
}

struct Resources {
  std::ptrdiff_t files, threads;
  long pages;
};

Resources resources() {
  const auto count = [](const char* folder) {
    const std::filesystem::directory_iterator entries(folder);
    return std::distance(begin(entries), end(entries));
  };
  long size = 0;
  std::ifstream("/proc/self/statm") >> size;
  return {count("/proc/self/fd"), count("/proc/self/task"), size};
}

// In every second epoch one rank does not raise, all time out, reset, and go on as if nothing had been.
TEST_P(SignalFaults, AHundredResetsAfterATimeoutLeaveNothingBehind) {
  constexpr int kWarmUp = 3, kResets = 100 / (kSlower == 1 ? 1 : 4);
  auto world = make(8);
  auto options = short_timeout(kSlower == 1 ? 120 : 300);
  options.first_epoch = 0xffffff80u;  // and wraps on the way
  world.run(options, [&](Rank rank, Signals& signals) {
    Resources before{}, after{};
    // Who looks opens a file, so of threads only one does.
    const bool looks = rank.rank() == 0 || GetParam() == RanksAre::processes;
    for (int round = 0; round < kWarmUp + kResets; ++round) {
      if (looks && round == kWarmUp) before = resources();
      bool stopped = false;
      try {
        if (rank.rank() == round % 8) signals.close_epoch();
        exchange(world, rank, signals, 2 * round);
      } catch (const Error& error) {
        check(error.kind() == ErrorKind::timeout, "{}", error.what());
        stopped = true;
      }
      check(stopped, "rank {} went on in round {}", rank.rank(), round);
      signals.reset();
      if (looks) after = resources();  // while no rank can have ended
      exchange(world, rank, signals, 2 * round + 1);
    }
    check(after.files == before.files && after.threads == before.threads && after.pages <= before.pages + 64,
          "{} files, {} threads, {} pages before, {}, {}, {} after", before.files, before.threads, before.pages,
          after.files, after.threads, after.pages);
  });
}

// What a slow port still carries when all give up must not count after the reset.
TEST_P(SignalFaults, RaisesUnderWayDoNotSurviveAReset) {
  SignalWorld world(4, 1, GetParam(), HostPortOptions{.drain = {1}, .capacity = 1 << 16, .visible_latency = {100e6}});
  auto options = short_timeout(500.0);
  world.run(options, [&](Rank rank, Signals& signals) {
    try {
      for (int peer = 0; peer < 4; ++peer) signals.raise(peer, 0, 1);
      if (rank.rank() == 0) signals.abort("rank 0 gives up");
      signals.wait(0, 4);
    } catch (const Error& error) {
      check(std::string(error.what()).find("rank 0 gives up") != std::string::npos, "{}", error.what());
    }
    signals.reset();
    for (int epoch = 0; epoch < 2; ++epoch) exchange(world, rank, signals, 10 + epoch);
  });
}

TEST_P(SignalFaults, AResetToWhichARankDoesNotComeNamesIt) {
  auto world = make(3);
  expect_error(ErrorKind::timeout,
               [&] {
                 world.run(short_timeout(500), [](Rank rank, Signals& signals) {
                   expect_error(ErrorKind::timeout, [&] { signals.wait(0, 1); }, {"flag 0"});
                   if (rank.rank() == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                   signals.reset();
                 });
               },
               {"reset, arrival of rank 1"});
}

// SIGKILL at any moment: before the first step, in a wait, between a put and its raise, at the barrier.
TEST(KilledRank, IsNamedByTheOthersWithinTheTimeoutAndNothingIsLeftBehind) {
  constexpr int kRanks = 8, kKills = 200 / kSlower;
  int killed = 0;
  for (int i = 0; i < kKills; ++i) {
    const RandomKey key{5, static_cast<std::uint64_t>(i)};
    const int rank = static_cast<int>(key.below(0, kRanks));
    SignalWorld world(kRanks, 1, RanksAre::processes);
    SignalOptions options = short_timeout(10e3);
    options.faults.kill = {rank, key.below(1, 80)};
    options.faults.seed = static_cast<std::uint64_t>(i);
    options.faults.max_delay = Nanos{20e3};
    const auto begin = Clock::now();
    try {
      world.run(options, [&](Rank own, Signals& signals) {
        for (int epoch = 0; epoch < 12; ++epoch) exchange(world, own, signals, epoch);
      });
    } catch (const Error& error) {
      const std::string text = error.what();
      ++killed;
      EXPECT_EQ(error.kind(), ErrorKind::timeout) << text;
      EXPECT_NE(text.find(fmt::format("rank {} (process ", rank)), std::string::npos) << text;
      EXPECT_NE(text.find("signal 9"), std::string::npos) << text;
      EXPECT_NE(text.find(fmt::format("the process of rank {} is gone", rank)), std::string::npos) << text;
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8)) << "kill " << i;
    ASSERT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
  }
  EXPECT_EQ(killed, kKills);
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_FALSE(file.path().filename().string().starts_with("xstage")) << file.path();
  }
}

}  // namespace
}  // namespace xs
