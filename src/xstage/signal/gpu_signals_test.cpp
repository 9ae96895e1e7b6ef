#include "xstage/signal/gpu_signals.hpp"

#include <set>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(FlagWords, NoTwoWordsShareAPlaceAndAllFitTheRegion) {
  for (const int num_flags : {0, 1, 7}) {
    for (const int num_ranks : {1, 2, 8}) {
      const FlagWords words{num_flags, num_ranks};
      std::set<std::size_t> places;
      for (int flag = 0; flag < num_flags; ++flag) {
        for (const std::uint32_t epoch : {4u, 5u}) places.insert(words.counter(flag, epoch));
      }
      for (int source = 0; source < num_ranks; ++source) {
        places.insert(words.arrival(source));
        places.insert(words.resetting(source));
      }
      EXPECT_EQ(places.size(), words.size());
      EXPECT_EQ(*places.rbegin() + 1, words.size());
      Layout layout;
      const auto region = GpuSignals::reserve(layout, num_flags, num_ranks);
      EXPECT_EQ(layout.bytes(region), sizeof(DeviceControl) + words.size() * sizeof(Word));
    }
  }
}

TEST(FlagWords, BanksAlternateAcrossTheWrapOfTheEpoch) {
  const FlagWords words{3, 2};
  const std::uint32_t last = 0xffffffffu;
  EXPECT_NE(words.counter(1, last), words.counter(1, last + 1));
  EXPECT_EQ(words.counter(1, last), words.counter(1, last + 2));
}

TEST(FlagWords, CountsAreComparedAcrossTheWrapOfTheEpochAndOfTheSign) {
  for (const std::uint32_t epoch : {1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    const Word base = armed(epoch);
    EXPECT_EQ(ahead(base + 3, base), 3);
    EXPECT_LT(ahead(base + 3, armed(epoch + 2)), 0) << "a word of the epoch before last is not far ahead";
    EXPECT_EQ(armed(epoch + 1), base + armed(1)) << "a kernel advances its base by adding";
  }
}

TEST(GpuReport, SaysTheSameAsAHostsReport) {
  SignalOptions options;
  options.flag_name = [](int flag) { return fmt::format("combined[{}]", flag); };
  WaitRecord record{WaitRecord::What::flag, 5, 2, 4, 3, 1'500'000'000};
  EXPECT_EQ(explain(record, options).text(), "rank 2 waited 1.500 s for combined[5]: expected 4, seen 3");
  EXPECT_EQ(explain(record, {}).text(), "rank 2 waited 1.500 s for flag 5: expected 4, seen 3");
  record.what = WaitRecord::What::arrival;
  EXPECT_EQ(explain(record, options).flag, "closing barrier, arrival of rank 5");
  record.what = WaitRecord::What::blocks;
  EXPECT_EQ(explain(record, options).flag, "closing barrier, blocks of its own");
  record.what = WaitRecord::What::handover;
  EXPECT_EQ(explain(record, options).flag, "handover 5 inside a block");
  record.what = WaitRecord::What::reset;
  EXPECT_EQ(explain(record, options).flag, "reset, arrival of rank 5");
}

// Runs with and without CUDA in the build, with and without a GPU in the machine.
TEST(GpuSignals, EitherAreArmedAndCanBeResetOrSayWhyNot) {
  Layout layout;
  const auto region = GpuSignals::reserve(layout, 2, 4);
  try {
    const GpuWorld world(layout, 4, 0, GpuPlace::own);
    SignalOptions options;
    options.first_epoch = 0xffffffffu;
    GpuSignals signals(world, region, 2, options);
    EXPECT_NO_THROW(signals.throw_if_given_up());
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(signals.epoch(rank), 0xffffffffu);
    signals.reset();
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(signals.epoch(rank), 0u);
    expect_usage_error([&] { signals.epoch(4); }, {"rank 4"});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
  }
}

}  // namespace
}  // namespace xs
