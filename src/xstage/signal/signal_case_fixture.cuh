#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "xstage/core/random.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/residency.hpp"
#include "xstage/signal/gpu_signals.hpp"
#include "xstage/signal/signal_case_kernels.cuh"

// What the cases of signals_device_test.cu share on the host.

namespace xs::cases {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Settings {
  std::int64_t epochs = 100'000;
  double late_s = 5;
  std::uint64_t seed = 1;
  bool small = false;
  std::string only;
};

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

inline const char* name(GpuPlace place) { return place == GpuPlace::own ? "own" : "far"; }

template <class Params>
void launch(void (*kernel)(Params), Params params, int blocks, int threads, std::size_t shared_bytes = 0,
            cudaStream_t stream = nullptr) {
  void* arguments[] = {&params};
  check_cuda(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                                         dim3(static_cast<unsigned>(threads)), arguments, shared_bytes, stream),
             "cooperative launch");
}

inline void finish() { check_cuda(cudaDeviceSynchronize(), "kernels of a case"); }

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size, int device = 0)
      : size_(size), memory_(device, GpuPlace::own, size * sizeof(T)) {}
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    memory_.read(0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  void fill(const std::vector<T>& values) const { memory_.write(0, std::as_bytes(std::span(values))); }

 private:
  std::size_t size_;
  GpuMemory memory_;
};

inline SignalOptions named(double timeout_s = 30) {
  SignalOptions options;
  options.timeout = Nanos{timeout_s * 1e9};
  options.flag_name = [](int flag) { return "a flag from rank " + std::to_string(flag); };
  return options;
}

constexpr int kPayloadWords = 256;  // of every source

// What every rank has of a world with a flag and a payload per source.
struct CaseLayout {
  explicit CaseLayout(int ranks)
      : num_ranks(ranks),
        payload(layout.add("payload", static_cast<std::size_t>(ranks) * kPayloadWords * sizeof(std::uint64_t))),
        region(GpuSignals::reserve(layout, ranks, ranks)) {}
  int num_ranks;
  Layout layout;
  RegionId payload, region;
};

// Such a world, and what Epochs needs.
class Fixture {
 public:
  static constexpr std::uint32_t kDelays = 4096;

  // Virtual ranks. `place`: of the payload.
  Fixture(int num_ranks, GpuPlace place, int blocks_per_rank, const Settings& settings, SignalOptions options = named())
      : Fixture(CaseLayout(num_ranks), GpuWorld(CaseLayout(num_ranks).layout, num_ranks, 0, GpuPlace::own),
                blocks_per_rank, settings, std::move(options)) {
    if (place == GpuPlace::far) far_.emplace(CaseLayout(num_ranks).layout, num_ranks, 0, place);
  }

  Fixture(const CaseLayout& layout, GpuWorld world, int blocks_per_rank, const Settings& settings,
          SignalOptions options = named())
      : options_(std::move(options)),
        payload_(layout.payload),
        blocks_per_rank_(blocks_per_rank),
        world_(std::move(world)),
        signals_(world_, layout.region, layout.num_ranks, options_),
        delays_(kDelays, world_.device()),
        wrong_(1, world_.device()),
        expected_epoch_(options_.first_epoch) {
    std::vector<std::uint32_t> delays;
    const RandomKey key{settings.seed, 0};
    for (std::uint64_t i = 0; i < kDelays; ++i) delays.push_back(static_cast<std::uint32_t>(key.below(i, 2000)));
    delays_.fill(delays);
  }

  Epochs epochs(std::int64_t num_epochs, bool all_to_all = false) const {
    const auto offset = world_.layout().offset(payload_);
    return {.tables = signals_.tables(),
            .num_parts = world_.num_own_ranks(),
            .parts = (far_ ? *far_ : world_).rank(world_.first_rank()).parts,
            .payload = offset,
            .num_words = kPayloadWords,
            .all_to_all = all_to_all,
            .num_epochs = num_epochs,
            .delays_ns = delays_.data(),
            .num_delays = kDelays,
            .wrong = wrong_.data()};
  }
  void start(const Epochs& one, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) const {
    require_resident(residency_of(world_.device(), reinterpret_cast<const void*>(epochs_kernel), "epochs", num_blocks(),
                                  kThreads, shared_bytes));
    launch(epochs_kernel, one, num_blocks(), kThreads, shared_bytes, stream);
  }
  // Every rank is `num_epochs` further and found every word.
  void expect_done(std::int64_t num_epochs) {
    finish();
    signals_.throw_if_given_up();
    const auto wrong = wrong_.host()[0];
    expect(wrong == 0, std::to_string(wrong) + " wrong words");
    expected_epoch_ += static_cast<std::uint32_t>(num_epochs);
    for (int i = 0; i < world_.num_own_ranks(); ++i) {
      const int rank = world_.first_rank() + i;
      expect(signals_.epoch(rank) == expected_epoch_, "rank " + std::to_string(rank) + " is in epoch " +
                                                          std::to_string(signals_.epoch(rank)) + ", not " +
                                                          std::to_string(expected_epoch_));
    }
  }
  void run(const Epochs& one) {
    start(one);
    expect_done(one.num_epochs);
  }
  // The text of the report; fails when there is none.
  std::string report() const {
    finish();
    try {
      signals_.throw_if_given_up();
    } catch (const std::exception& error) {
      return error.what();
    }
    throw std::runtime_error("no report, though a raise was dropped");
  }
  void reset() {
    signals_.reset();
    expected_epoch_ = signals_.epoch(world_.first_rank());
  }
  int num_blocks() const { return world_.num_own_ranks() * blocks_per_rank_; }
  int blocks_per_rank() const { return blocks_per_rank_; }

 private:
  SignalOptions options_;
  RegionId payload_;
  int blocks_per_rank_;
  GpuWorld world_;
  std::optional<GpuWorld> far_;  // holds the payload instead
  GpuSignals signals_;
  DeviceArray<std::uint32_t> delays_;
  DeviceArray<unsigned long long> wrong_;
  std::uint32_t expected_epoch_;
};

// A launch as a graph, replayed in a stream of its own.
class CapturedLaunch {
 public:
  explicit CapturedLaunch(const std::function<void(cudaStream_t)>& launch) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    launch(stream_);
    check_cuda(cudaStreamEndCapture(stream_, &graph_), "capture");
    check_cuda(cudaGraphInstantiate(&replay_, graph_, 0), "a graph");
  }
  CapturedLaunch(const CapturedLaunch&) = delete;
  CapturedLaunch& operator=(const CapturedLaunch&) = delete;
  ~CapturedLaunch() {
    cudaGraphExecDestroy(replay_);
    cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  void replay() const { check_cuda(cudaGraphLaunch(replay_, stream_), "replay"); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
};

struct RoundTripTimes {
  double low_ns, median_ns, high_ns, mean_ns;  // 5 %, half and 95 % of the trips are faster
  std::string text() const {
    char text[160];
    std::snprintf(text, sizeof(text), "median %.0f ns, 5 %% %.0f, 95 %% %.0f; mean of all %.0f", median_ns, low_ns,
                  high_ns, mean_ns);
    return text;
  }
};

// Of a flag between ranks 0 and 1 of two; `signals` has one flag. Only rank 0 measures.
inline RoundTripTimes measure_round_trips(const GpuWorld& world, const GpuSignals& signals, int num_trips) {
  const DeviceArray<std::uint32_t> cycles(static_cast<std::size_t>(num_trips), world.device());
  const DeviceArray<std::uint64_t> all(2, world.device());
  launch(round_trips_kernel, RoundTrips{signals.tables(), num_trips, cycles.data(), all.data()}, world.num_own_ranks(),
         32);
  finish();
  signals.throw_if_given_up();
  if (world.first_rank() != 0) return {};
  auto trips = cycles.host();
  std::sort(trips.begin(), trips.end());
  const auto totals = all.host();
  const double ns_per_cycle = static_cast<double>(totals[0]) / static_cast<double>(totals[1]);
  const auto at = [&](double part) { return ns_per_cycle * trips[static_cast<std::size_t>(part * (num_trips - 1))]; };
  return {at(0.05), at(0.5), at(0.95), static_cast<double>(totals[0]) / num_trips};
}

// Runs cases one after the other and says what became of each.
class Table {
 public:
  explicit Table(const Settings& settings) : settings_(settings) {}
  // The case returns how many epochs it ran, and may say more.
  void run(const std::string& name, const std::function<std::int64_t(std::string& remark)>& one) {
    if (name.find(settings_.only) == std::string::npos) return;
    const auto begin = Clock::now();
    std::string remark, why;
    std::int64_t epochs = 0;
    try {
      epochs = one(remark);
    } catch (const std::exception& error) {
      why = error.what();
    }
    const double seconds = seconds_since(begin);
    ++(why.empty() ? passed_ : failed_);
    std::printf("%s %s%s%s  %.2f s", why.empty() ? "ok" : "FAILED", name.c_str(), why.empty() ? "" : ": ", why.c_str(),
                seconds);
    if (epochs > 0) std::printf("  %.0f epochs/s", static_cast<double>(epochs) / seconds);
    std::printf("%s%s\n", remark.empty() ? "" : "  ", remark.c_str());
    std::fflush(stdout);
  }
  int exit_code() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  const Settings& settings_;
  int passed_ = 0, failed_ = 0;
};

inline void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    expect(text.find(word) != std::string::npos, "the report '" + text + "' lacks '" + word + "'");
  }
}

inline Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--small") {
      settings.small = true;
      settings.epochs = 20;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(option + ": unknown, or lacks its value");
    const char* value = argv[++i];
    if (option == "--epochs") {
      settings.epochs = std::atoll(value);
    } else if (option == "--late-s") {
      settings.late_s = std::atof(value);
    } else if (option == "--seed") {
      settings.seed = static_cast<std::uint64_t>(std::atoll(value));
    } else if (option == "--only") {
      settings.only = value;
    } else {
      throw std::runtime_error(option + " is no option");
    }
  }
  return settings;
}

}  // namespace xs::cases
