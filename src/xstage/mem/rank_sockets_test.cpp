#include "xstage/mem/rank_sockets.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <span>
#include <thread>

#include "xstage/core/test_support.hpp"
#include "xstage/mem/run_ranks.hpp"

namespace xs {
namespace {

using Parcel = RankSockets::Parcel;

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

Parcel parcel_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {{bytes.begin(), bytes.end()}, OpenFile()};
}

std::string text_of(const Parcel& parcel) {
  return {reinterpret_cast<const char*>(parcel.bytes.data()), parcel.bytes.size()};
}

// A file in memory that holds `text`.
OpenFile file_with(const std::string& text) {
  OpenFile file(::memfd_create("gift", MFD_CLOEXEC));
  check(::pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "no file in memory");
  return file;
}

std::string content(const OpenFile& file) {
  std::string text(100, '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  check(size >= 0, "no file came");
  return text.substr(0, static_cast<std::size_t>(size));
}

// Every kind of world must do the same.
class Sockets : public testing::TestWithParam<RanksAre> {
 protected:
  static constexpr int kRanks = 5;
  // Runs `body` on ranks that have met.
  void run(const std::function<void(RankSockets&)>& body) const {
    run_ranks(world_, [&](Rank rank) {
      RankSockets sockets(rank, region_);
      body(sockets);
    });
  }

  Layout layout_;
  RegionId region_ = RankSockets::reserve(layout_);
  World world_{layout_, kRanks, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(As, Sockets, testing::Values(RanksAre::threads, RanksAre::processes),
                         [](const auto& one) { return to_string(one.param); });

TEST_P(Sockets, EveryRankGetsWhatEveryOtherGave) {
  run([](RankSockets& sockets) {
    for (int round = 0; round < 200; ++round) {
      const auto given = [&](int rank) { return fmt::format("{:>{}}", rank, 17 * rank + round); };
      const auto parcels = sockets.exchange([&] { return parcel_of(given(sockets.rank())); });
      for (int rank = 0; rank < kRanks; ++rank) {
        const auto& parcel = parcels[static_cast<std::size_t>(rank)];
        check(text_of(parcel) == given(rank), "round {}: rank {} got \"{}\" from rank {}", round, sockets.rank(),
              text_of(parcel), rank);
        check(!parcel.file.is_open(), "a file that nobody gave");
      }
    }
  });
}

TEST_P(Sockets, OpenFilesTravel) {
  run([](RankSockets& sockets) {
    // Only odd ranks have one to give.
    const auto parcels = sockets.exchange([&]() -> Parcel {
      if (sockets.rank() % 2 == 0) return {};
      return {{}, file_with(fmt::format("of rank {}", sockets.rank()))};
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& file = parcels[static_cast<std::size_t>(rank)].file;
      check(file.is_open() == (rank % 2 == 1), "rank {}: whether a file came", rank);
      if (file.is_open()) check(content(file) == fmt::format("of rank {}", rank), "another file came");
    }
  });
}

TEST_P(Sockets, AMeetingIsABarrier) {
  Layout layout;
  const auto region = RankSockets::reserve(layout);
  const auto counts = layout.add("counts", kRanks * sizeof(int));
  const World world(layout, kRanks, GetParam());
  run_ranks(world, [&](Rank rank) {
    RankSockets sockets(rank, region);
    for (int round = 1; round <= 50; ++round) {
      for (int peer = 0; peer < kRanks; ++peer) {
        rank.put(peer, counts, static_cast<std::size_t>(rank.rank()) * sizeof(int),
                 std::as_bytes(std::span(&round, 1)));
      }
      sockets.meet();
      for (const int count : rank.local_as<int>(counts))
        check(count == round, "a rank in round {} of {}", count, round);
      sockets.meet();
    }
  });
}

TEST_P(Sockets, WhereOneFailsAllFailAndMayGoOn) {
  run([](RankSockets& sockets) {
    for (int round = 0; round < 3; ++round) {
      expect_error(ErrorKind::unavailable,
                   [&] {
                     sockets.exchange([&]() -> Parcel {
                       if (sockets.rank() == 3) fail(ErrorKind::usage, "later");
                       if (sockets.rank() == 1) fail(ErrorKind::unavailable, "no memory");
                       return {};
                     });
                   },
                   {"rank 1: no memory"});
      check(!testing::Test::HasFailure(), "see above");
      sockets.meet();
    }
  });
}

TEST_P(Sockets, TheSameWorldAgainAndAgainLeavesNoFileOpen) {
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    run_ranks(world_, [&](Rank rank) {
      for (int again = 0; again < 3; ++again)
        RankSockets(rank, region_).exchange([] { return Parcel{{}, file_with("x")}; });
    });
  }
  EXPECT_EQ(open_files(), before);
}

TEST_P(Sockets, WhoDoesNotComeIsNamed) {
  expect_error(ErrorKind::timeout,
               [&] {
                 run_ranks(world_, [&](Rank rank) {
                   if (rank.rank() == 1 || rank.rank() == 3) return;
                   RankSockets(rank, region_, {.timeout = Nanos{5e7}});
                 });
               },
               {"waits for rank 1"});
}

TEST_P(Sockets, WhoIsLateInAnExchangeIsNamedAndNothingGoesOn) {
  run_ranks(world_, [&](Rank rank) {
    RankSockets sockets(rank, region_, {.timeout = Nanos{1e8}});
    if (rank.rank() == 2) return std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int again = 0; again < 2; ++again) {
      expect_error(ErrorKind::timeout, [&] { sockets.meet(); }, {"waits for rank 2", "after 0.100 s"});
      check(!testing::Test::HasFailure(), "see above");
    }
  });
}

TEST_P(Sockets, WhoGaveUpIsNamedAtOnce) {
  expect_usage_error(
      [&] {
        run([](RankSockets& sockets) {
          if (sockets.rank() == 4) fail(ErrorKind::usage, "I give up");
          expect_error(ErrorKind::timeout, [&] { sockets.meet(); }, {"rank 4, which is gone"});
          check(!testing::Test::HasFailure(), "see above");
        });
      },
      {"I give up"});
}

TEST_P(Sockets, AParcelThatIsTooLargeIsRefusedByAll) {
  expect_error(ErrorKind::internal,
               [&] {
                 run([](RankSockets& sockets) {
                   sockets.exchange([&] {
                     const bool large = sockets.rank() == 0;
                     return Parcel{std::vector<std::byte>(RankSockets::kMostBytes + (large ? 1 : 0)), OpenFile()};
                   });
                 });
               },
               {"rank 0", "4097 bytes", "4096 at most"});
}

constexpr uid_t kOther = 65533;

class SocketsOfUsers : public testing::Test {
 protected:
  // As root, rank 1 really is another user's process. Else one rank expects another user, which is the same to it.
  void run(RankSocketsOptions rank0, RankSocketsOptions rank1) const {
    run_ranks(world_, [&](Rank rank) {
      if (rank.rank() == 1 && ::geteuid() == 0) check(::setresuid(kOther, kOther, kOther) == 0, "still root");
      RankSockets sockets(rank, region_, rank.rank() == 0 ? rank0 : rank1);
      fail(ErrorKind::internal, "rank {} met a stranger", rank.rank());
    });
  }

  Layout layout_;
  RegionId region_ = RankSockets::reserve(layout_);
  World world_{layout_, 2, RanksAre::processes};
  const uid_t own_ = ::geteuid();
};

TEST_F(SocketsOfUsers, WhoFindsAStrangerListeningSaysNothing) {
  expect_usage_error([&] { run({.user = own_}, {.user = kOther}); },
                     {fmt::format("rank 1 expects processes of user {}, rank 0 is one of user {}", kOther, own_),
                      "start all ranks as one user"});
}

TEST_F(SocketsOfUsers, AStrangerThatConnectsIsRefused) {
  const auto [found, expected] = own_ == 0 ? std::pair{kOther, own_} : std::pair{own_, kOther};
  expect_error(ErrorKind::timeout, [&] { run({.timeout = Nanos{5e8}, .user = expected}, {.user = own_}); },
               {"rank 0 waits for rank 1 to meet it",
                fmt::format("a process of user {} was refused, user {} expected", found, expected)});
}

}  // namespace
}  // namespace xs
