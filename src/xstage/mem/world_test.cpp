#include "xstage/mem/world.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(Layout, RegionsAreDisjointAlignedAndInOrder) {
  Layout layout;
  std::vector<RegionId> regions;
  for (const std::size_t bytes : {1, 0, 128, 129, 4096, 3}) {
    regions.push_back(layout.add("r" + std::to_string(bytes), bytes));
  }
  std::size_t end = 0;
  for (const auto region : regions) {
    EXPECT_GE(layout.offset(region), end) << layout.name(region);
    EXPECT_EQ(layout.offset(region) % Layout::kAlignment, 0u);
    end = layout.offset(region) + layout.bytes(region);
  }
  EXPECT_GE(layout.total_bytes(), end);
}

TEST(World, MemoryStartsZeroedAndBelongsToOneRank) {
  Layout layout;
  const auto region = layout.add("words", 1000 * sizeof(int));
  const World world(layout, 3);
  for (int rank = 0; rank < 3; ++rank) {
    for (int& word : world.rank(rank).local_as<int>(region)) {
      ASSERT_EQ(word, 0);
      word = rank + 1;
    }
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(world.rank(rank).local_as<int>(region)[999], rank + 1);
}

TEST(World, PutWritesExactlyTheNamedBytes) {
  Layout layout;
  layout.add("before", 64);
  const auto region = layout.add("target", 64);
  const auto after = layout.add("after", 64);
  const World world(layout, 2);
  const std::vector<std::byte> source(24, std::byte{7});
  world.rank(0).put(1, region, 40, source);
  const auto target = world.rank(1).local(region);
  for (std::size_t i = 0; i < target.size(); ++i) EXPECT_EQ(target[i], i < 40 ? std::byte{0} : std::byte{7});
  for (const auto byte : world.rank(1).local(after)) EXPECT_EQ(byte, std::byte{0});
  for (const auto byte : world.rank(0).local(region)) EXPECT_EQ(byte, std::byte{0});
}

TEST(World, PutThatDoesNotFitIsRefusedByName) {
  Layout layout;
  const auto region = layout.add("slots", 64);
  const World world(layout, 2);
  const std::vector<std::byte> source(32);
  EXPECT_NO_THROW(world.rank(0).put(1, region, 32, source));
  for (const std::size_t offset : {std::size_t{33}, std::size_t{65}, ~std::size_t{0}}) {
    try {
      world.rank(0).put(1, region, offset, source);
      FAIL() << "offset " << offset;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("slots"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(world.rank(0).put(2, region, 0, source), Error);
  EXPECT_THROW(world.rank(0).put(-1, region, 0, source), Error);
}

TEST(World, MoreMemoryThanThereIsNamesTheBytes) {
  Layout layout;
  layout.add("huge", std::size_t{1} << 46);
  try {
    World(layout, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(error.what()).find(std::to_string(std::size_t{1} << 46)), std::string::npos) << error.what();
  }
}

TEST(World, ProcessesFindNoMoreMemoryThanShmHasAndAreToldHowToGetIt) {
  Layout layout;
  layout.add("huge", std::size_t{1} << 45);
  expect_error(ErrorKind::unavailable, [&] { World(layout, 2, RanksAre::processes); },
               {std::to_string(std::size_t{1} << 45), "/dev/shm has", "--shm-size"});
}

// As another program would, by path. The test is rank 0 and, in a process of its own, rank 1.
int join_status(const World& world, const Layout& layout, int num_ranks, int rank, ErrorKind expected) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    try {
      World::join(world.path(), layout, num_ranks, rank, Nanos{20e6});
      ::_exit(0);
    } catch (const Error& error) {
      ::_exit(error.kind() == expected ? 10 : 11);
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

TEST(World, AProcessJoinsByPathWhenEverythingAgreesAndAllAreThere) {
  Layout layout;
  layout.add("rows", 4096);
  const World world(layout, 2, RanksAre::processes);
  EXPECT_EQ(join_status(world, layout, 2, 1, ErrorKind::timeout), 10) << "rank 0 is not there";
  ASSERT_TRUE(world.become(0));
  EXPECT_EQ(join_status(world, layout, 2, 1, ErrorKind::timeout), 0);
  EXPECT_EQ(join_status(world, layout, 2, 0, ErrorKind::usage), 10) << "rank 0 is there already";
  EXPECT_EQ(join_status(world, layout, 3, 1, ErrorKind::usage), 10) << "another number of ranks";
}

TEST(World, ARankWithAnotherCapacityIsToldWhichRegionDiffers) {
  Layout layout, other;
  for (auto* one : {&layout, &other}) one->add("counts", 64);
  layout.add("rows", 4096);
  other.add("rows", 8192);
  const World world(layout, 2, RanksAre::processes);
  expect_usage_error([&] { World::join(world.path(), other, 2, 1, Nanos{1e6}); },
                     {"rank 1", "region rows of 8192 bytes", "region rows of 4096 bytes"});
  expect_usage_error([&] { World::join(world.path(), layout, 4, 1, Nanos{1e6}); }, {"of 4 ranks", "of 2 ranks"});
}

TEST(World, WhatIsNoWorldIsNotJoined) {
  const TempFolder folder;
  expect_usage_error([&] { World::join(folder / "none", {}, 1, 0, Nanos{1e6}); }, {"none", "No such file"});
  folder.write("readable", "text");
  std::filesystem::permissions(folder / "readable", std::filesystem::perms(0644));
  expect_usage_error([&] { World::join(folder / "readable", {}, 1, 0, Nanos{1e6}); }, {"mode 600", "644"});
  folder.write("text", "text");
  std::filesystem::permissions(folder / "text", std::filesystem::perms(0600));
  expect_usage_error([&] { World::join(folder / "text", {}, 1, 0, Nanos{1e6}); }, {"has text"});
}

TEST(World, SharedMemoryIsThisUsersAloneAndHasNoName) {
  const auto in_shm = [] {
    const std::filesystem::directory_iterator files("/dev/shm");
    return std::count_if(begin(files), end(files),
                         [](const auto& file) { return file.path().filename().string().starts_with("xstage"); });
  };
  const World world(Layout{}, 1, RanksAre::processes);
  struct stat found {};
  ASSERT_EQ(::stat(world.path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(in_shm(), 0);
}

}  // namespace
}  // namespace xs
