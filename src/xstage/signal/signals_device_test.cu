// Flags inside kernels: every case of the host's table, faults and resets on virtual ranks of one GPU.
// A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.
//   signals_device_test [EPOCHS [--small]]   --small: few epochs and blocks, for compute-sanitizer

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/mem/residency.hpp"
#include "xstage/signal/exchange_kernels.cuh"
#include "xstage/signal/gpu_signals.hpp"

namespace {

using xs::exchange;
using xs::ExchangeParams;
using xs::GpuMemory;
using xs::GpuPlace;
using xs::GpuSignals;
using xs::kThreads;
using xs::kWords;
using xs::Nanos;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Ranks, their flags and payload, and the launch.
class Fixture {
 public:
  Fixture(int num_ranks, int num_blocks, xs::GpuSignalOptions options, GpuPlace place = GpuPlace::own)
      : num_ranks_(num_ranks),
        num_blocks_(num_blocks),
        signals_(0, num_ranks, num_blocks, num_blocks, std::move(options)),
        counts_(0, GpuPlace::own, 2 * sizeof(unsigned long long)) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      payload_.emplace_back(0, place,
                            static_cast<std::size_t>(num_ranks) * num_blocks * kWords * sizeof(std::uint64_t));
    }
  }

  ExchangeParams params(int num_epochs) {
    ExchangeParams p{};
    for (int rank = 0; rank < num_ranks_; ++rank) {
      p.signals[rank] = signals_.of(rank);
      p.received[rank] = reinterpret_cast<std::uint64_t*>(payload_[rank].data());
    }
    p.num_epochs = num_epochs;
    p.seed = 7;
    p.drop_rank = p.drop_epoch = -1;
    p.wrong = reinterpret_cast<unsigned long long*>(counts_.data());
    p.gave_up = p.wrong + 1;
    return p;
  }

  // One cooperative grid: all ranks are resident, or it is refused.
  void launch(ExchangeParams& p, cudaStream_t stream = nullptr) const {
    xs::require_resident(
        xs::residency_of(0, reinterpret_cast<void*>(exchange), "exchange", num_ranks_ * num_blocks_, kThreads, 0));
    void* arguments[] = {&p};
    xs::check_cuda(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(exchange), dim3(num_ranks_ * num_blocks_),
                                               dim3(kThreads), arguments, 0, stream),
                   "launch of the exchange");
  }

  // A kernel per rank, the last one first.
  void launch_reversed(ExchangeParams p) const {
    std::vector<cudaStream_t> streams(num_ranks_);
    for (auto& stream : streams) xs::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    for (int rank = num_ranks_ - 1; rank >= 0; --rank) {
      p.first_rank = rank;
      exchange<<<num_blocks_, kThreads, 0, streams[rank]>>>(p);
      xs::check_cuda(cudaGetLastError(), "launch of one rank");
    }
    finish();
    for (auto stream : streams) cudaStreamDestroy(stream);
  }

  void finish() const { xs::check_cuda(cudaDeviceSynchronize(), "end of the launch"); }

  unsigned long long wrong() const { return count(0); }
  unsigned long long gave_up() const { return count(1); }
  void clear() { counts_.write(0, std::vector<std::byte>(counts_.size(), std::byte{0})); }
  GpuSignals& signals() { return signals_; }

 private:
  unsigned long long count(int index) const {
    unsigned long long value = 0;
    counts_.read(static_cast<std::size_t>(index) * sizeof(value), std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  int num_ranks_, num_blocks_;
  GpuSignals signals_;
  GpuMemory counts_;
  std::vector<GpuMemory> payload_;
};

int num_failed = 0;

// What `body` returns is what is wrong; empty: nothing.
template <class Body>
void check_case(const std::string& name, Body&& body) {
  const auto begin = Clock::now();
  std::string wrong;
  try {
    wrong = body();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  std::printf("%-6s %-52s %8.3f s%s%s\n", wrong.empty() ? "ok" : "FAILED", name.c_str(), seconds_since(begin),
              wrong.empty() ? "" : ": ", wrong.c_str());
  std::fflush(stdout);
  num_failed += wrong.empty() ? 0 : 1;
}

std::string verdict(Fixture& fixture, std::uint32_t expected_epoch, int num_ranks) {
  fixture.signals().check();
  if (fixture.wrong() != 0) return std::to_string(fixture.wrong()) + " payload words of another epoch";
  if (fixture.gave_up() != 0) return "blocks gave up without a report";
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto epoch = fixture.signals().epoch(rank);
    if (epoch != expected_epoch) return "rank " + std::to_string(rank) + " is in epoch " + std::to_string(epoch);
  }
  return "";
}

// A report that says all of `words`.
std::string expect_report(Fixture& fixture, const std::vector<std::string>& words) {
  try {
    fixture.signals().check();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    for (const auto& word : words) {
      if (text.find(word) == std::string::npos) return text + " lacks " + word;
    }
    return "";
  }
  return "no report";
}

struct Case {
  const char* name;
  int num_ranks, num_blocks;
  GpuPlace place = GpuPlace::own;
  std::uint32_t first_epoch = 1;
  xs::Word first_arrival = 0;
  std::uint32_t max_delay_ns = 0;
  int share = 1;  // of the epochs: slow cases do fewer
};

void run_cases(int num_epochs, bool small) {
  const int blocks = small ? 1 : 4;
  const Case cases[] = {
      {"one rank", 1, blocks},
      {"two ranks", 2, blocks},
      {"four ranks", 4, blocks},
      {"eight ranks", 8, blocks},
      {"two ranks, random delays", 2, blocks, GpuPlace::own, 1, 0, 2000},
      {"four ranks, random delays", 4, blocks, GpuPlace::own, 1, 0, 2000},
      {"eight ranks, random delays", 8, blocks, GpuPlace::own, 1, 0, 2000},
      {"four ranks, payload in far memory, random delays", 4, 2, GpuPlace::far, 1, 0, 2000, 10},
      {"epoch wraps", 3, 2, GpuPlace::own, 0xfffffff8u, 0, 500, 100},
      {"epoch's sign bit", 3, 2, GpuPlace::own, 0x7ffffff8u, 0, 500, 100},
      {"arrivals' sign bit", 3, 2, GpuPlace::own, 1, (xs::Word{1} << 63) - 5, 500, 100},
      {"arrivals wrap", 3, 2, GpuPlace::own, 1, ~xs::Word{4}, 500, 100},
      {"sixteen blocks a rank", 8, small ? 2 : 16, GpuPlace::own, 1, 0, 0, 10},
  };
  for (const auto& one : cases) {
    const int epochs = std::max(num_epochs / one.share, std::min(num_epochs, 20));
    check_case(std::string(one.name) + ", " + std::to_string(epochs) + " epochs", [&]() -> std::string {
      xs::GpuSignalOptions options;
      options.first_epoch = one.first_epoch;
      options.first_arrival = one.first_arrival;
      Fixture fixture(one.num_ranks, one.num_blocks, options, one.place);
      auto p = fixture.params(epochs);
      p.max_delay_ns = one.max_delay_ns;
      fixture.launch(p);
      fixture.finish();
      return verdict(fixture, one.first_epoch + static_cast<std::uint32_t>(epochs), one.num_ranks);
    });
  }
}

void run_round_trip(int num_rounds) {
  check_case("round trip of a flag", [&]() -> std::string {
    GpuSignals signals(0, 2, 1, 1, {});
    GpuMemory ns(0, GpuPlace::own, sizeof(std::int64_t));
    xs::PingPongParams p{{signals.of(0), signals.of(1)}, num_rounds, reinterpret_cast<std::int64_t*>(ns.data())};
    void* arguments[] = {&p};
    std::vector<double> each;
    for (int i = 0; i < 11; ++i) {
      xs::check_cuda(
          cudaLaunchCooperativeKernel(reinterpret_cast<void*>(xs::ping_pong), dim3(2), dim3(32), arguments, 0, nullptr),
          "launch of the round trip");
      xs::check_cuda(cudaDeviceSynchronize(), "round trip");
      signals.check();
      std::int64_t all = 0;
      ns.read(0, std::as_writable_bytes(std::span(&all, 1)));
      each.push_back(static_cast<double>(all) / num_rounds);
      signals.reset();
    }
    std::sort(each.begin(), each.end());
    std::printf("       round trip between two virtual ranks: median %.0f ns, %.0f to %.0f (11 times %d)\n", each[5],
                each[0], each[10], num_rounds);
    return each[5] <= 1900 ? "" : "slower than 1900 ns";
  });
}

xs::GpuSignalOptions short_timeout(double ms) {
  xs::GpuSignalOptions options;
  options.timeout = Nanos{ms * 1e6};
  options.flag_name = [](int flag) { return "arrived[" + std::to_string(flag) + "]"; };
  return options;
}

void run_faults(bool small) {
  check_case("one rank is late", [&]() -> std::string {
    Fixture fixture(4, 2, {});
    auto p = fixture.params(3);
    p.late_ns[2] = small ? 50'000'000 : 5'000'000'000;
    fixture.launch(p);
    fixture.finish();
    return verdict(fixture, 4, 4);
  });
  check_case("a dropped raise is reported by its flag", [&]() -> std::string {
    Fixture fixture(4, 2, short_timeout(1000));
    auto p = fixture.params(5);
    p.drop_rank = 1;
    p.drop_epoch = 3;
    fixture.launch(p);
    fixture.finish();
    if (fixture.gave_up() != 8) return std::to_string(fixture.gave_up()) + " of 8 blocks gave up";
    if (auto wrong =
            expect_report(fixture, {"rank 2 waited 1.0", "arrived[", "expected 4, seen 3", "all ranks stopped"});
        !wrong.empty()) {
      return wrong;
    }
    try {
      fixture.signals().of(0);
      return "not poisoned";
    } catch (const std::exception&) {
    }
    return "";
  });
  check_case("100 resets after timeouts, without a leak", [&]() -> std::string {
    Fixture fixture(4, 2, short_timeout(5));
    std::size_t before = 0, after = 0, total = 0;
    xs::check_cuda(cudaMemGetInfo(&before, &total), "free memory");
    std::uint32_t epoch = 1;
    for (int i = 0; i < 100; ++i) {
      auto p = fixture.params(3);
      p.drop_rank = i % 4;
      p.drop_epoch = i % 3;
      fixture.launch(p);
      fixture.finish();
      const auto reporter = "rank " + std::to_string((i % 4 + 1) % 4) + " waited";
      if (auto wrong = expect_report(fixture, {reporter, "expected 4, seen 3"}); !wrong.empty()) return wrong;
      fixture.signals().reset();
      fixture.clear();
      epoch = fixture.signals().epoch(0);
      auto good = fixture.params(2);
      fixture.launch(good);
      fixture.finish();
      if (auto wrong = verdict(fixture, epoch + 2, 4); !wrong.empty())
        return "after reset " + std::to_string(i) + ": " + wrong;
    }
    xs::check_cuda(cudaMemGetInfo(&after, &total), "free memory");
    return before == after ? "" : std::to_string(before - after) + " bytes are gone";
  });
  check_case("two roles of a block both come out", [&]() -> std::string {
    GpuSignals signals(0, 1, 2, 1, short_timeout(20));
    GpuMemory count(0, GpuPlace::own, sizeof(unsigned long long));
    xs::two_roles<<<1, 64>>>(signals.of(0), 3, reinterpret_cast<unsigned long long*>(count.data()));
    xs::check_cuda(cudaDeviceSynchronize(), "two roles");
    unsigned long long came_out = 0;
    count.read(0, std::as_writable_bytes(std::span(&came_out, 1)));
    try {
      signals.check();
      return "no report";
    } catch (const std::exception&) {
    }
    return came_out == 2 ? "" : "a role is missing";
  });
  check_case("kernels in reversed order on streams of their own", [&]() -> std::string {
    Fixture fixture(4, 2, {});
    fixture.launch_reversed(fixture.params(small ? 5 : 1000));
    return verdict(fixture, small ? 6 : 1001, 4);
  });
  check_case("a grid that cannot be resident is refused with numbers", [&]() -> std::string {
    Fixture fixture(8, 1000, {});
    auto p = fixture.params(1);
    try {
      fixture.launch(p);
      return "launched";
    } catch (const std::exception& error) {
      const std::string text = error.what();
      return text.find("8000 blocks of 128 threads") != std::string::npos ? "" : text;
    }
  });
  check_case("squatters on half of the SMs", [&]() -> std::string {
    cudaDeviceProp device{};
    xs::check_cuda(cudaGetDeviceProperties(&device, 0), "properties of the GPU");
    cudaStream_t stream;
    xs::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    Fixture fixture(8, small ? 1 : 16, {});  // 128 blocks: many fit into what is left, or they wait
    xs::squat<<<device.multiProcessorCount / 2, 1024, 0, stream>>>(200'000'000);
    auto p = fixture.params(100);
    fixture.launch(p);
    fixture.finish();
    cudaStreamDestroy(stream);
    return verdict(fixture, 101, 8);
  });
}

void run_graph(int num_replays) {
  check_case("a captured launch, replayed " + std::to_string(num_replays) + " times", [&]() -> std::string {
    constexpr int kEpochs = 3;
    Fixture fixture(4, 2, {});
    auto p = fixture.params(kEpochs);
    cudaStream_t stream;
    xs::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    xs::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a capture");
    fixture.launch(p, stream);
    cudaGraph_t graph;
    xs::check_cuda(cudaStreamEndCapture(stream, &graph), "end of a capture");
    cudaGraphExec_t replay;
    xs::check_cuda(cudaGraphInstantiate(&replay, graph, 0), "instantiation of a graph");
    for (int i = 0; i < num_replays; ++i) xs::check_cuda(cudaGraphLaunch(replay, stream), "a replay");
    fixture.finish();
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return verdict(fixture, 1 + static_cast<std::uint32_t>(kEpochs * num_replays), 4);
  });
}

}  // namespace

int main(int argc, char** argv) {
  // Kernels that wait for each other must not wait for the loading of one another's code.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  const bool small = argc > 2 && std::strcmp(argv[2], "--small") == 0;
  const int num_epochs = argc > 1 ? std::atoi(argv[1]) : 100'000;
  if (num_epochs < 1 || argc > 3 || (argc == 3 && !small)) {
    std::fprintf(stderr, "usage: signals_device_test [EPOCHS [--small]]\n");
    return 2;
  }
  try {
    const auto gpu = xs::find_gpus().front();
    std::printf("%s, %d SMs\n", gpu.name.c_str(), gpu.num_sms);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "signals_device_test: %s\n", error.what());
    return 3;
  }
  run_cases(num_epochs, small);
  run_round_trip(small ? 10 : 2000);
  run_faults(small);
  run_graph(small ? 5 : 1000);
  std::printf("%s\n", num_failed == 0 ? "all passed" : (std::to_string(num_failed) + " failed").c_str());
  return num_failed == 0 ? 0 : 1;
}
