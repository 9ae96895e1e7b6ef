#include "xstage/mem/run_ranks.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// Every kind of world must do the same.
class RunRanks : public testing::TestWithParam<RanksAre> {
 protected:
  RunRanks() : words_(layout_.add("words", 8 * sizeof(int))), world_(layout_, 5, GetParam()) {}
  ~RunRanks() override {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
    EXPECT_EQ(errno, ECHILD);
  }
  void put(Rank rank, int peer, int value) const {
    rank.put(peer, words_, static_cast<std::size_t>(rank.rank()) * sizeof(int), std::as_bytes(std::span(&value, 1)));
  }
  int word(int rank, int source) const {
    return world_.rank(rank).local_as<int>(words_)[static_cast<std::size_t>(source)];
  }

  Layout layout_;
  RegionId words_;
  World world_;
};

INSTANTIATE_TEST_SUITE_P(As, RunRanks, testing::Values(RanksAre::threads, RanksAre::processes),
                         [](const auto& one) { return to_string(one.param); });

TEST_P(RunRanks, RunsEveryRankOnceAndTheCallerSeesWhatTheyPut) {
  run_ranks(world_, [&](Rank rank) {
    for (int peer = 0; peer < 5; ++peer) put(rank, peer, 10 * rank.rank() + peer);
  });
  for (int rank = 0; rank < 5; ++rank) {
    for (int source = 0; source < 5; ++source) EXPECT_EQ(word(rank, source), 10 * source + rank);
  }
}

TEST_P(RunRanks, RethrowsTheCauseAndNotItsEcho) {
  expect_usage_error(
      [&] {
        run_ranks(world_, [](Rank rank) {
          if (rank.rank() == 3) fail(ErrorKind::usage, "the cause");
          fail(ErrorKind::timeout, "an echo");
        });
      },
      {"the cause"});
}

TEST_P(RunRanks, WhatIsNoErrorOfOursNamesItsRank) {
  expect_error(ErrorKind::internal,
               [&] {
                 run_ranks(world_, [](Rank rank) {
                   if (rank.rank() == 2) throw std::out_of_range("beyond the end");
                 });
               },
               {"rank 2", "beyond the end"});
}

TEST_P(RunRanks, AgainAndAgainLeavesNoFileOpen) {
  const auto before = open_files();
  for (int i = 0; i < 50; ++i) {
    run_ranks(world_, [&](Rank rank) { put(rank, 0, i); });
    EXPECT_THROW(run_ranks(world_, [](Rank) { fail(ErrorKind::timeout, "again"); }), Error);
  }
  EXPECT_EQ(open_files(), before);
}

class RunProcesses : public testing::Test {
 protected:
  // Until rank 0 has failed.
  static void wait_for_rank_0(Rank rank) {
    while (rank.gone_peer() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  World world_{Layout{}, 4, RanksAre::processes};
};

TEST_F(RunProcesses, AreProcessesThatKnowWhoIsThere) {
  const pid_t own = ::getpid();
  expect_usage_error(
      [&] {
        run_ranks(world_, [&](Rank rank) {
          check(::getpid() != own, "the caller's process");
          if (rank.rank() != 0) return wait_for_rank_0(rank);
          check(!rank.gone_peer(), "a rank is missing");
          fail(ErrorKind::usage, "nobody is missing");
        });
      },
      {"nobody is missing"});
}

TEST_F(RunProcesses, WhoIsDoneIsNotGone) {
  run_ranks(world_, [&](Rank rank) {
    if (rank.rank() != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    check(!rank.gone_peer(), "a rank that is done counts as gone");
  });
}

TEST_F(RunProcesses, ALongErrorIsCutAndDoesNotBlock) {
  expect_usage_error([&] { run_ranks(world_, [](Rank) { throw Error(ErrorKind::usage, std::string(100000, 'x')); }); },
                     {"xxxx"});
}

TEST_F(RunProcesses, ALostRankIsNamedBeforeAllEchoes) {
  const auto run = [&](int signal) {
    return [this, signal] {
      run_ranks(world_, [signal](Rank rank) {
        if (rank.rank() == 2) {
          ::signal(signal, SIG_DFL);
          ::kill(::getpid(), signal);
        }
        // Rank 0 alone looks for who is missing; the others stay until it has told.
        if (rank.rank() != 0) return wait_for_rank_0(rank);
        while (!rank.gone_peer()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        fail(ErrorKind::timeout, "rank {} misses rank {}", rank.rank(), *rank.gone_peer());
      });
    };
  };
  expect_error(ErrorKind::timeout, run(SIGKILL), {"rank 2 (process", "signal 9", "misses rank 2"});
  expect_error(ErrorKind::internal, run(SIGILL), {"rank 2 (process", "signal 4"});
}

TEST_F(RunProcesses, ARankThatEndsTheProcessIsNoSuccess) {
  expect_error(ErrorKind::internal,
               [&] {
                 run_ranks(world_, [](Rank rank) {
                   if (rank.rank() == 1) ::_exit(7);
                 });
               },
               {"rank 1", "exit code 7"});
}

// However the caller ends: nobody computes on for it.
TEST_F(RunProcesses, EndWithTheirCaller) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t caller = ::fork();
  if (caller == 0) {
    run_ranks(world_, [&](Rank) {
      if (::write(ends[1], "x", 1) == 1) std::this_thread::sleep_for(std::chrono::hours(1));
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char byte;
  for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // the last process that could write has ended
  ::close(ends[0]);
}

}  // namespace
}  // namespace xs
