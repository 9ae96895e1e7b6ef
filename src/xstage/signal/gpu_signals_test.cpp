#include "xstage/signal/gpu_signals.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// The image that kernels and host agree on.
TEST(DeviceSignals, WordsOfARegionLieApartAndFillIt) {
  constexpr int kFlags = 3, kRanks = 4;
  std::vector<std::byte> bytes(DeviceSignals::bytes(kFlags, kRanks), std::byte{0});
  std::vector<std::byte*> region{bytes.data()};
  const DeviceSignals signals{region.data(), 0, kRanks, kFlags, 1, 0, 0};
  std::vector<Word*> words;
  for (const std::uint32_t epoch : {6u, 7u}) {
    for (int flag = 0; flag < kFlags; ++flag) words.push_back(&signals.counter(0, flag, epoch));
  }
  for (int source = 0; source < kRanks; ++source) words.push_back(&signals.arrival(0, source));
  for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(words[i], signals.words(0) + i);
  EXPECT_EQ(reinterpret_cast<std::byte*>(words.back() + 1), bytes.data() + bytes.size());
  EXPECT_EQ(&signals.counter(0, 1, 8), &signals.counter(0, 1, 6));
}

TEST(FlagWord, ComparesByDifferenceAcrossEveryWrap) {
  EXPECT_EQ(ahead(armed(0), armed(0xffffffffu)), std::int64_t{1} << 32);
  EXPECT_LT(ahead(armed(0xffffffffu) + 5, armed(0)), 0);
  EXPECT_EQ(ahead(armed(0x80000000u) + 3, armed(0x80000000u) + 5), -2);
  EXPECT_EQ(ahead(Word{2}, ~Word{0}), 3);
}

// Runs with and without CUDA in the build, with and without a GPU in the machine.
TEST(GpuSignals, WithoutAGpuOneSentenceSaysWhyThereAreNone) {
  try {
    GpuSignals signals(0, 2, 3, 1, {});
    EXPECT_EQ(signals.epoch(1), 1u);
    signals.reset();
    EXPECT_EQ(signals.epoch(0), 2u);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
  }
}

}  // namespace
}  // namespace xs
