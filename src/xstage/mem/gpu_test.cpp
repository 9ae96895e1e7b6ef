#include "xstage/mem/gpu.hpp"

#include <gtest/gtest.h>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// Runs with and without CUDA in the build, with and without a GPU in the machine.
TEST(Gpu, EitherThereAreSomeOrOneSentenceSaysWhyNot) {
  try {
    const auto gpus = find_gpus();
    ASSERT_FALSE(gpus.empty());
    for (const auto& gpu : gpus) {
      EXPECT_GT(gpu.num_sms, 0) << gpu.name;
      ASSERT_EQ(gpu.reaches.size(), gpus.size());
      EXPECT_TRUE(gpu.reaches[static_cast<std::size_t>(gpu.device)]);
    }
    EXPECT_GT(cuda_versions().driver, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace xs
