#include "xstage/signal/device_signals.cuh"

#include "xstage/core/test_support.hpp"
#include "xstage/mem/world.hpp"
#include "xstage/signal/epochs_kernel.cuh"
#include "xstage/signal/gpu_signals.hpp"

// Signals inside kernels, with threads in the place of a GPU's: what is wrong with the protocol is wrong here too, and
// ThreadSanitizer sees a missing order. signals_device_test.cu is the same on a GPU.

namespace xs {
namespace {

constexpr int kThreads = 4;
constexpr int kWords = 16;

class ThreadGpu {
 public:
  ThreadGpu(int num_ranks, int blocks_per_rank, const SignalOptions& options)
      : num_ranks_(num_ranks),
        blocks_per_rank_(blocks_per_rank),
        options_(options),
        payload_(layout_.add("payload", static_cast<std::size_t>(num_ranks) * kWords * sizeof(Word))),
        region_(GpuSignals::reserve(layout_, num_ranks, num_ranks)),
        world_(layout_, num_ranks),
        local_(static_cast<std::size_t>(num_ranks)) {
    for (int rank = 0; rank < num_ranks; ++rank) parts_.push_back(world_.rank(rank).local(payload_).data());
    const auto timeout = static_cast<std::uint64_t>(options.timeout.value);
    for (int rank = 0; rank < num_ranks; ++rank) {
      tables_.push_back({{rank, num_ranks, parts_.data()},
                         layout_.offset(region_),
                         num_ranks,
                         timeout,
                         static_cast<std::uint64_t>(barrier_timeout(options.timeout).value),
                         &local_[static_cast<std::size_t>(rank)]});
    }
    on_threads::run_grid(num_ranks, kThreads, [&] {
      DeviceSignals(tables_[blockIdx.x]).arm_first(options_.first_epoch, options_.first_arrival);
    });
    Dice dice(5);
    for (int i = 0; i < 64; ++i) delays_.push_back(static_cast<std::uint32_t>(dice.whole(0, 3000)));
  }

  cases::Epochs epochs(std::int64_t num_epochs, bool all_to_all) {
    return {.tables = tables_.data(),
            .num_parts = num_ranks_,
            .parts = parts_.data(),
            .payload = layout_.offset(payload_),
            .num_words = kWords,
            .all_to_all = all_to_all,
            .num_epochs = num_epochs,
            .delays_ns = delays_.data(),
            .num_delays = static_cast<std::uint32_t>(delays_.size()),
            .wrong = &wrong_};
  }
  void run(const cases::Epochs& one) const {
    on_threads::run_grid(num_ranks_ * blocks_per_rank_, kThreads, [&] { cases::epochs_kernel(one); });
  }
  bool reset() {
    std::atomic<int> missed = 0;
    on_threads::run_grid(num_ranks_, kThreads, [&] {
      if (!DeviceSignals(tables_[blockIdx.x]).reset(options_.first_arrival)) ++missed;
    });
    return missed == 0;
  }

  std::uint32_t epoch(int rank) const {
    return static_cast<std::uint32_t>(local_[static_cast<std::size_t>(rank)].epoch >> 32);
  }
  DeviceControl& control(int rank) const {
    return *reinterpret_cast<DeviceControl*>(world_.rank(rank).local(region_).data());
  }
  // No rank gave up, all are in `epoch`, and no word was wrong.
  void expect_all_in(std::uint32_t epoch_of_all) const {
    EXPECT_EQ(wrong_, 0u);
    for (int rank = 0; rank < num_ranks_; ++rank) {
      EXPECT_EQ(control(rank).aborted, 0u) << explain(control(rank).record, options_).text();
      EXPECT_EQ(epoch(rank), epoch_of_all) << "rank " << rank;
    }
  }

 private:
  int num_ranks_, blocks_per_rank_;
  SignalOptions options_;
  Layout layout_;
  RegionId payload_, region_;
  World world_;
  std::vector<LocalWords> local_;
  std::vector<std::byte*> parts_;
  std::vector<SignalTable> tables_;
  std::vector<std::uint32_t> delays_;
  unsigned long long wrong_ = 0;
};

TEST(DeviceSignals, EveryPayloadWordIsThereAcrossKernelsAndTheWrapOfEveryCounter) {
  constexpr int kEpochs = 100 / kSlower;
  for (const auto& [epoch, arrival] : {std::pair{1u, Word{0}},
                                       {0xffffffffu - kEpochs, ~Word{0} - kEpochs},
                                       {0x7fffffffu - kEpochs, (~Word{0} >> 1) - kEpochs}}) {
    for (const auto& [num_ranks, blocks] : {std::pair{2, 1}, {2, 2}, {3, 2}}) {
      SignalOptions options;
      options.first_epoch = epoch;
      options.first_arrival = arrival;
      ThreadGpu gpu(num_ranks, blocks, options);
      for (const bool all_to_all : {false, true}) gpu.run(gpu.epochs(kEpochs, all_to_all));
      gpu.expect_all_in(epoch + 2 * kEpochs);
    }
  }
}

TEST(DeviceSignals, ADroppedRaiseEndsEveryBlockWithOneReportAndAResetHeals) {
  constexpr int kRanks = 3, kBlocks = 2;
  SignalOptions options;
  options.timeout = Nanos{0.8e9};
  ThreadGpu gpu(kRanks, kBlocks, options);
  for (int round = 0; round < 3; ++round) {
    auto one = gpu.epochs(10, round % 2 == 0);
    one.drop_rank = round;
    one.drop_epoch = 5;
    gpu.run(one);  // that it returns is the clean end
    const int waiter = (round + 1) % kRanks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(gpu.control(rank).aborted, static_cast<Word>(waiter) + 1);
      const auto report = explain(gpu.control(rank).record, options);
      EXPECT_EQ(report.flag, fmt::format("flag {}", round));
      EXPECT_EQ(report.rank, waiter);
      EXPECT_EQ(report.expected, kBlocks);
      EXPECT_EQ(report.seen, kBlocks - 1);
      EXPECT_GE(report.since, options.timeout);
    }
    const auto poisoned = gpu.epoch(0);
    gpu.run(gpu.epochs(10, true));
    EXPECT_EQ(gpu.epoch(0), poisoned) << "poisoned flags were used";
    ASSERT_TRUE(gpu.reset());
    gpu.expect_all_in(poisoned + 1);
    gpu.run(gpu.epochs(10, true));
    gpu.expect_all_in(poisoned + 11);
  }
}

TEST(DeviceSignals, ALateRankIsWaitedFor) {
  ThreadGpu gpu(2, 2, {});
  auto one = gpu.epochs(5, true);
  one.late_rank = 1;
  one.late_ns = 200'000'000;
  gpu.run(one);
  gpu.expect_all_in(6);
}

TEST(DeviceSignals, AResetWithoutAPeerNamesIt) {
  Layout layout;
  const auto region = GpuSignals::reserve(layout, 1, 2);
  const World world(layout, 2);
  std::byte* parts[] = {world.rank(0).local(region).data(), world.rank(1).local(region).data()};
  LocalWords local{};
  const SignalTable table{{0, 2, parts}, 0, 1, 10'000'000, 12'500'000, &local};
  bool done = true;
  on_threads::run_grid(1, 1, [&] {
    DeviceSignals signals(table);
    signals.arm_first(1, 0);
    done = signals.reset(0);
  });
  EXPECT_FALSE(done);
  EXPECT_EQ(explain(local.missed, {}).flag, "reset, arrival of rank 1");
}

TEST(DeviceSignals, AHandoverThatNeverComesEndsWithAReport) {
  Layout layout;
  const auto region = GpuSignals::reserve(layout, 1, 1);
  const World world(layout, 1);
  std::byte* parts[] = {world.rank(0).local(region).data()};
  LocalWords local{};
  const SignalTable table{{0, 1, parts}, 0, 1, 10'000'000, 12'500'000, &local};
  bool handed = true, again = true;
  on_threads::run_grid(1, 1, [&] {
    DeviceSignals signals(table);
    signals.arm_first(1, 0);
    handed = signals.handover(7, [] { return false; });
    again = signals.wait(0, 0);  // is reached, and poisoned
  });
  EXPECT_FALSE(handed);
  EXPECT_FALSE(again);
  const auto& record = reinterpret_cast<const DeviceControl*>(parts[0])->record;
  EXPECT_EQ(explain(record, {}).flag, "handover 7 inside a block");
}

}  // namespace
}  // namespace xs
