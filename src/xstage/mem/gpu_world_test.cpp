#include "xstage/mem/gpu_world.hpp"

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(GridPart, EveryBlockOfAGridBelongsToOnePartOfEqualSize) {
  for (const int num_parts : {1, 2, 4, 8}) {
    const int each = 16;
    for (int block = 0; block < num_parts * each; ++block) {
      const auto part = part_of(block, num_parts * each, num_parts);
      EXPECT_EQ(part.part * each + part.block, block);
      EXPECT_TRUE(part.block >= 0 && part.block < each && part.part < num_parts);
      EXPECT_EQ(part.num_blocks, each);
    }
  }
}

TEST(DeviceRank, ReachesAPeersRegionThroughTheTable) {
  Layout layout;
  layout.add("first", 8);
  const auto second = layout.add("second", 8);
  std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(layout.total_bytes()));
  std::vector<std::byte*> parts;
  for (auto& part : memory) parts.push_back(part.data());
  const DeviceRank rank{1, 3, parts.data()};
  *rank.at<std::byte>(2, layout.offset(second)) = std::byte{7};
  EXPECT_EQ(memory[2][layout.offset(second)], std::byte{7});
}

// Runs with and without CUDA in the build, with and without a GPU in the machine.
TEST(GpuWorld, EitherHoldsAZeroedPartPerRankOrSaysWhyNot) {
  Layout layout;
  layout.add("other", 100);
  const auto region = layout.add("payload", 64);
  for (const auto place : {GpuPlace::own, GpuPlace::far}) {
    try {
      const GpuWorld world(layout, 3, 0, place);
      std::vector<std::byte> bytes(64, std::byte{1});
      world.read(2, region, 0, bytes);
      EXPECT_EQ(bytes, std::vector<std::byte>(64));
      const std::vector<std::byte> sent(8, std::byte{5});
      world.write(1, region, 56, sent);
      world.read(1, region, 0, bytes);
      EXPECT_EQ(bytes[55], std::byte{0});
      EXPECT_EQ(bytes[56], std::byte{5});
      expect_usage_error([&] { world.write(1, region, 57, sent); }, {"payload", "64 bytes"});
      expect_usage_error([&] { world.read(3, region, 0, bytes); }, {"rank 3 of 3"});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
    }
  }
}

}  // namespace
}  // namespace xs
