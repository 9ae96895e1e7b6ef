#include "xstage/mem/gpu_share.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/mem/run_ranks.hpp"

namespace xs {
namespace {

// Runs with and without CUDA in the build, with and without a GPU in the machine, and also when another test of this
// program has called CUDA; gpu_share_device_test does the rest.
TEST(GpuShare, EitherEveryRankReachesAllOrOneSentenceSaysWhyNot) {
  Layout layout;
  const auto region = RankSockets::reserve(layout);
  const World world(layout, 2, RanksAre::processes);
  run_ranks(world, [&](Rank rank) {
    RankSockets sockets(rank, region);
    try {
      const GpuShare share(sockets, 0, GpuShareBy::file, 1000);
      check(share.parts().size() == 2, "{} parts", share.parts().size());
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool called_before = text.find("had called CUDA") != std::string::npos;
      if (error.kind() != (called_before ? ErrorKind::usage : ErrorKind::unavailable)) throw;
      check(text.find('\n') == std::string::npos, "more than a sentence: {}", text);
    }
    sockets.meet();  // the ranks are still together
  });
}

TEST(GpuShare, WaysHaveNames) {
  std::vector<std::string> names;
  for (const auto by : kGpuShareBys) names.push_back(to_string(by));
  EXPECT_EQ(names, (std::vector<std::string>{"ipc", "file", "fabric"}));
}

}  // namespace
}  // namespace xs
