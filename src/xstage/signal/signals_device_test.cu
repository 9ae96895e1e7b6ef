// Signals inside kernels: the case table of signals_test on virtual ranks of one GPU, and everything that may go wrong.
// A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.
//
//   signals_device_test [--epochs N] [--late-s S] [--seed S] [--small] [--only TEXT]
//
// --small: little of everything and no limit on times or on free memory, for compute-sanitizer. --only: the cases whose
// name contains TEXT.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "xstage/signal/signal_case_fixture.cuh"

namespace xs::cases {
namespace {

void payload_cases(Table& table, const Settings& settings, int num_sms) {
  for (const auto place : {GpuPlace::own, GpuPlace::far}) {
    for (const int num_ranks : settings.small ? std::vector{2, 4} : std::vector{2, 4, 8}) {
      // In own memory every rank has its share of the SMs; far memory is slow enough with two blocks a rank.
      const int blocks = place == GpuPlace::far || settings.small ? 2 : num_sms / num_ranks;
      for (const bool all_to_all : {false, true}) {
        const auto name = "payload " + std::string(cases::name(place)) + " " + std::to_string(num_ranks) + " ranks " +
                          (all_to_all ? "all to all" : "ring");
        table.run(name, [&](std::string&) {
          Fixture fixture(num_ranks, place, blocks, settings);
          constexpr int kLaunches = 10;
          for (int i = 0; i < kLaunches; ++i) fixture.run(fixture.epochs(settings.epochs / kLaunches, all_to_all));
          return settings.epochs / kLaunches * kLaunches;
        });
      }
    }
  }
}

void wrap_cases(Table& table, const Settings& settings) {
  const std::int64_t epochs = settings.small ? 10 : 2000;
  for (const std::uint32_t top : {0xffffffffu, 0x7fffffffu}) {
    for (const Word most : {~Word{0}, ~Word{0} >> 1}) {
      const auto half = static_cast<std::uint32_t>(epochs / 2);
      table.run(std::string("wrap of the epoch") + (top >> 31 ? "" : "'s sign") + " and of arrivals" +
                    (most >> 63 ? "" : "' sign"),
                [&](std::string&) {
                  auto options = named();
                  options.first_epoch = top - half;
                  options.first_arrival = most - half;
                  Fixture fixture(4, GpuPlace::own, 2, settings, options);
                  fixture.run(fixture.epochs(epochs, true));
                  return epochs;
                });
    }
  }
}

void round_trip_case(Table& table, const Settings& settings) {
  table.run("round trip", [&](std::string& remark) -> std::int64_t {
    Layout layout;
    const auto region = GpuSignals::reserve(layout, 1, 2);
    const GpuWorld world(layout, 2, 0, GpuPlace::own);
    const GpuSignals signals(world, region, 1, named());
    const auto trips = measure_round_trips(world, signals, settings.small ? 20 : 20'000);
    remark = trips.text();
    // 1.9 us were measured between two processes that share a GPU; a third more is this test's limit.
    expect(settings.small || trips.median_ns <= 1.3 * 1900, remark);
    return 1;
  });
}

void far_flags_case(Table& table) {
  table.run("flags where additions are not atomic are refused", [&](std::string& remark) -> std::int64_t {
    int native = 0;
    check_cuda(cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, 0), "atomics");
    Layout layout;
    const auto region = GpuSignals::reserve(layout, 1, 2);
    const GpuWorld world(layout, 2, 0, GpuPlace::far);
    try {
      const GpuSignals signals(world, region, 1, named());
    } catch (const std::exception& error) {
      remark = error.what();
    }
    if (native == 0) expect_words(remark, {"rank 0", "not atomic"});
    return 0;
  });
}

void late_case(Table& table, const Settings& settings) {
  const double late = settings.small ? 0.2 : settings.late_s;
  table.run("a rank " + std::to_string(late) + " s late", [&](std::string&) {
    Fixture fixture(4, GpuPlace::own, 4, settings);
    auto one = fixture.epochs(10, true);
    one.late_rank = 2;
    one.late_ns = static_cast<std::uint64_t>(late * 1e9);
    const auto begin = Clock::now();
    fixture.run(one);
    expect(seconds_since(begin) >= late, "it was not late");
    return one.num_epochs;
  });
}

void dropped_raise_cases(Table& table, const Settings& settings) {
  for (const auto place : {GpuPlace::own, GpuPlace::far}) {
    for (const bool all_to_all : {false, true}) {
      table.run(std::string("dropped raise ") + name(place) + (all_to_all ? " all to all" : " ring"),
                [&](std::string& remark) {
                  Fixture fixture(4, place, 4, settings, named(1));
                  auto one = fixture.epochs(100, all_to_all);
                  one.drop_rank = 2;
                  one.drop_epoch = 50;
                  auto begin = Clock::now();
                  fixture.start(one);
                  remark = fixture.report();
                  const double waited = seconds_since(begin);
                  expect_words(remark, {"rank 3 waited 1.0", "a flag from rank 2: expected 4, seen 3"});
                  expect(settings.small || waited < 1.5, "the kernel ended after " + std::to_string(waited) + " s");
                  begin = Clock::now();
                  fixture.start(fixture.epochs(1));
                  expect(fixture.report() == remark, "the second report differs");
                  expect(settings.small || seconds_since(begin) < 0.5, "poisoned flags were waited for");
                  fixture.reset();
                  fixture.run(fixture.epochs(100, all_to_all));
                  return std::int64_t{150};
                });
    }
  }
}

void reset_case(Table& table, const Settings& settings) {
  table.run("collective resets", [&](std::string& remark) {
    Fixture fixture(4, GpuPlace::own, 4, settings, named(settings.small ? 0.5 : 0.02));
    const int resets = settings.small ? 3 : 100;
    std::size_t free_before = 0, free_after = 0, total = 0;
    for (int i = 0; i <= resets; ++i) {
      // The first round loads what is loaded once.
      if (i == 1) check_cuda(cudaMemGetInfo(&free_before, &total), "free memory");
      auto one = fixture.epochs(20, i % 2 == 0);
      one.drop_rank = i % 4;
      one.drop_epoch = i % 20;
      fixture.start(one);
      const auto text = fixture.report();
      expect_words(text, {"rank " + std::to_string((one.drop_rank + 1) % 4) + " waited"});
      fixture.reset();
      fixture.run(fixture.epochs(10, true));
    }
    check_cuda(cudaMemGetInfo(&free_after, &total), "free memory");
    expect(settings.small || free_before == free_after,
           std::to_string(free_before) + " bytes were free, now " + std::to_string(free_after));
    remark = std::to_string(resets) + " resets, " + std::to_string(free_after) + " bytes free before and after";
    return std::int64_t{10} * (resets + 1);
  });
}

// Squatters and ranks ask for so much shared memory that no SM holds one of each.
void squatter_cases(Table& table, const Settings& settings, int num_sms) {
  constexpr int kShared = 160 * 1024;
  check_cuda(cudaFuncSetAttribute(epochs_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "shared memory");
  check_cuda(cudaFuncSetAttribute(squat_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
  const auto one = [&](double squat_s, double timeout_s, std::string& remark) {
    Fixture fixture(4, GpuPlace::own, num_sms / 4, settings, named(timeout_s));
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    squat_kernel<<<16, 32, kShared, stream>>>(static_cast<std::uint64_t>(squat_s * 1e9));
    check_cuda(cudaGetLastError(), "squatters");
    const auto begin = Clock::now();
    fixture.start(fixture.epochs(10), kShared);
    finish();
    const double seconds = seconds_since(begin);
    check_cuda(cudaStreamDestroy(stream), "a stream");
    expect(seconds < squat_s + timeout_s * 1.25 + 1, "ended after " + std::to_string(seconds) + " s");
    try {
      fixture.expect_done(10);
      remark = "completed after " + std::to_string(seconds) + " s";
      return std::int64_t{10};
    } catch (const std::exception& error) {
      remark = error.what();
      expect_words(remark, {"waited", "all ranks stopped"});
      fixture.reset();
      fixture.run(fixture.epochs(10));
      return std::int64_t{10};
    }
  };
  const double squat = settings.small ? 0.05 : 0.5;
  table.run("squatters on 16 SMs, shorter than the timeout", [&](std::string& remark) {
    const auto epochs = one(squat, 30, remark);
    expect_words(remark, {"completed"});
    return epochs;
  });
  table.run("squatters on 16 SMs, longer than the timeout",
            [&](std::string& remark) { return one(4 * squat, squat, remark); });
  table.run("a grid that cannot be resident", [&](std::string& remark) -> std::int64_t {
    Fixture fixture(4, GpuPlace::own, num_sms / 4 + 1, settings);
    try {
      fixture.start(fixture.epochs(1), kShared);
    } catch (const std::exception& error) {
      remark = error.what();
      expect_words(remark, {std::to_string(fixture.num_blocks()) + " blocks", std::to_string(num_sms) + " SMs"});
      return 0;
    }
    throw std::runtime_error("it was not refused");
  });
}

void graph_case(Table& table, const Settings& settings) {
  table.run("replay of a captured graph", [&](std::string& remark) {
    Fixture fixture(4, GpuPlace::own, 4, settings);
    const int replays = settings.small ? 10 : 1000;
    const auto one = fixture.epochs(5, true);
    const CapturedLaunch captured([&](cudaStream_t stream) { fixture.start(one, 0, stream); });
    for (int i = 0; i < replays; ++i) captured.replay();
    fixture.expect_done(replays * one.num_epochs);
    remark = std::to_string(replays) + " replays";
    return replays * one.num_epochs;
  });
}

// A launch per rank, the last rank first. Streams enough that no launch stands behind another one that waits for it.
void reversed_case(Table& table, const Settings& settings, int num_sms) {
  const int num_ranks = settings.small ? 2 : 8;
  table.run("a launch per rank, in reversed order", [&](std::string&) {
    Fixture fixture(num_ranks, GpuPlace::own, settings.small ? 2 : num_sms / num_ranks, settings);
    std::vector<cudaStream_t> streams(static_cast<std::size_t>(num_ranks));
    for (auto& stream : streams) check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    auto one = fixture.epochs(settings.small ? 10 : 1000, true);
    const auto* tables = one.tables;
    one.num_parts = 1;
    for (int rank = num_ranks - 1; rank >= 0; --rank) {
      one.tables = tables + rank;
      epochs_kernel<<<static_cast<unsigned>(fixture.blocks_per_rank()), kThreads, 0,
                      streams[static_cast<std::size_t>(rank)]>>>(one);
      check_cuda(cudaGetLastError(), "launch of a rank");
    }
    fixture.expect_done(one.num_epochs);
    for (auto stream : streams) check_cuda(cudaStreamDestroy(stream), "a stream");
    return one.num_epochs;
  });
}

void role_cases(Table& table, const Settings& settings) {
  for (const bool drop : {false, true}) {
    table.run(
        std::string("two roles in a block, ") + (drop ? "a dropped raise ends both" : "all tiles"),
        [&](std::string& remark) -> std::int64_t {
          constexpr int kRanks = 4;
          const int num_tiles = settings.small ? 8 : 1000;
          auto options = named(0.5);
          options.flag_name = [](int) { return std::string("tiles of the rank before"); };
          Layout layout;
          const auto payload = layout.add("payload", static_cast<std::size_t>(num_tiles) * 32 * 8);
          const auto region = GpuSignals::reserve(layout, 1, kRanks);
          const GpuWorld world(layout, kRanks, 0, GpuPlace::own);
          const GpuSignals signals(world, region, 1, options);
          const DeviceArray<unsigned long long> counts(2);
          const int dropped = drop ? num_tiles / 2 : -1;
          const auto begin = Clock::now();
          launch(
              roles_kernel,
              Roles{signals.tables(), layout.offset(payload), num_tiles, 1, dropped, counts.data(), counts.data() + 1},
              kRanks, 64);
          finish();
          const double seconds = seconds_since(begin);
          expect(counts.host()[0] == 0, std::to_string(counts.host()[0]) + " wrong words");
          expect(counts.host()[1] == kRanks, std::to_string(counts.host()[1]) + " of 4 blocks came to the end");
          if (!drop) {
            signals.throw_if_given_up();
            for (int rank = 0; rank < kRanks; ++rank) expect(signals.epoch(rank) == 2, "the epoch was not closed");
            return 1;
          }
          try {
            signals.throw_if_given_up();
          } catch (const std::exception& error) {
            remark = error.what();
          }
          // Counts of the tiles that follow stand in for it until there is none to follow.
          const auto last = std::to_string(num_tiles), seen = std::to_string(num_tiles - 1);
          expect_words(remark, {"rank 2 waited 0.5", "tiles of the rank before: expected " + last + ", seen " + seen});
          expect(settings.small || seconds < 1.5, "ended after " + std::to_string(seconds) + " s");
          return 0;
        });
  }
}

int run_all(const Settings& settings) {
  int num_sms = 0;
  check_cuda(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0), "SMs");
  Table table(settings);
  round_trip_case(table, settings);
  far_flags_case(table);
  wrap_cases(table, settings);
  payload_cases(table, settings, num_sms);
  role_cases(table, settings);
  dropped_raise_cases(table, settings);
  reset_case(table, settings);
  squatter_cases(table, settings, num_sms);
  graph_case(table, settings);
  reversed_case(table, settings, num_sms);
  late_case(table, settings);
  return table.exit_code();
}

}  // namespace
}  // namespace xs::cases

int main(int argc, char** argv) {
  // Before the first call of CUDA: a launch must not wait for another kernel's end, neither to load its code nor for a
  // hardware queue.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  int num_devices = 0;
  const auto status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess || num_devices == 0) {
    std::fprintf(stderr, "signals_device_test: no GPU: %s\n", cudaGetErrorString(status));
    return 3;
  }
  try {
    return xs::cases::run_all(xs::cases::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "signals_device_test: %s\n", error.what());
    return 1;
  }
}
