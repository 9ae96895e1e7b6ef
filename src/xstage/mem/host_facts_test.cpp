#include "xstage/mem/host_facts.hpp"

#include <fstream>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(HostFacts, NoMoreOfTheSharedMemoryIsFreeThanThereIs) {
  const auto space = shared_space();
  EXPECT_LE(space.free_bytes, space.bytes);
}

TEST(HostFacts, DriverTellsItsVersionAndItsGpus) {
  const TempFolder folder;
  EXPECT_EQ(driver_version(folder.path()), "");
  EXPECT_EQ(name_of_a_gpu(folder.path()), "");
  std::ofstream(folder / "version") << "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release\n"
                                       "GCC version:  gcc version 12.2.0\n";
  std::filesystem::create_directories(folder / "gpus/0000:19:00.0");
  std::ofstream(folder / "gpus/0000:19:00.0/information") << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\n";
  EXPECT_EQ(driver_version(folder.path()), "580.159.04");
  EXPECT_EQ(name_of_a_gpu(folder.path()), "NVIDIA H200");
}

}  // namespace
}  // namespace xs
