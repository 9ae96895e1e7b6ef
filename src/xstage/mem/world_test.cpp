#include "xstage/mem/world.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "xstage/core/error.hpp"

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

TEST(World, RunRanksRunsEveryRankOnceAndRethrowsTheCause) {
  const World world(Layout{}, 5);
  std::atomic<int> seen = 0;
  run_ranks(world, [&](Rank rank) { seen += 1 << (4 * rank.rank()); });
  EXPECT_EQ(seen, 0x11111);
  try {
    run_ranks(world, [](Rank rank) {
      if (rank.rank() == 3) fail(ErrorKind::usage, "the cause");
      fail(ErrorKind::timeout, "an echo");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
}

}  // namespace
}  // namespace xs
