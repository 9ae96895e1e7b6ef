// Copies by the copy engines: bytes, batches, waits for a flag that a kernel raises, a flag that nobody raises. A plain
// program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/signal/device_atomic.cuh"
#include "xstage/tile/copy_engine.hpp"
#include "xstage/tile/sm_clock.cuh"

namespace {

using xs::Copy;
using xs::CopyQueue;
using xs::GpuMemory;
using xs::GpuPlace;
using xs::Word;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = (std::size_t{4} << 20) + 48;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

struct Raise {
  std::uint32_t* payload;
  int num_words;
  std::uint32_t seed;
  Word* flag;
  std::uint64_t delay_ns;
};

// After a while writes what a copy waits for, and says so.
__global__ void raise_late(const __grid_constant__ Raise one) {
  for (const auto begin = xs::gpu_nanos(); static_cast<std::uint64_t>(xs::gpu_nanos() - begin) < one.delay_ns;) {
  }
  for (int i = static_cast<int>(threadIdx.x); i < one.num_words; i += static_cast<int>(blockDim.x)) {
    one.payload[i] = one.seed + static_cast<std::uint32_t>(i);
  }
  __syncthreads();
  // publishes: payload of the block; to: CopyQueue::wait_for; release, system scope.
  if (threadIdx.x == 0) xs::device::release_add(*one.flag, 1);
}

class Rig {
 public:
  explicit Rig(GpuPlace target)
      : source(0, GpuPlace::own, kBytes), target(0, target, kBytes), flag(0, GpuPlace::own, 8) {
    xs::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    xs::check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "a stream");
  }
  ~Rig() {
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
  }
  Word* word() const { return reinterpret_cast<Word*>(flag.data()); }
  std::vector<std::byte> fill(int seed) const {
    std::vector<std::byte> bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<unsigned>(seed));
    source.write(0, bytes);
    return bytes;
  }
  std::vector<std::byte> found() const {
    std::vector<std::byte> bytes(kBytes);
    target.read(0, bytes);
    return bytes;
  }
  GpuMemory source, target, flag;
  cudaStream_t stream = nullptr, other = nullptr;
};

void bytes_arrive(GpuPlace place, bool batched) {
  const Rig rig(place);
  const auto sent = rig.fill(batched ? 1 : 2);
  CopyQueue queue(rig.stream);
  // Pieces of unequal sizes, the empty one included.
  std::vector<Copy> copies;
  std::size_t at = 0;
  for (std::size_t bytes = 0; at < kBytes; bytes = bytes * 3 + 1) {
    bytes = std::min(bytes, kBytes - at);
    copies.push_back({rig.target.data() + at, rig.source.data() + at, bytes});
    at += bytes;
  }
  if (batched) {
    queue.copy_batch(copies);
    queue.copy_batch({});
  } else {
    for (const auto& one : copies) queue.copy(one);
  }
  queue.finish();
  expect(rig.found() == sent, "bytes differ");
}

void a_copy_waits_for_its_flag(GpuPlace place) {
  const Rig rig(place);
  constexpr int kWords = 100'000;
  const Word base = xs::armed(0xffffffffu);
  for (int round = 0; round < 20; ++round) {
    const auto seed = static_cast<std::uint32_t>(round * 1'000'003);
    rig.flag.write(0, std::as_bytes(std::span(&base, 1)));
    CopyQueue queue(rig.stream, {5e9});
    queue.wait_for(rig.word(), base + 2, "a late flag");
    queue.copy({rig.target.data(), rig.source.data(), kWords * sizeof(std::uint32_t)});
    auto* payload = reinterpret_cast<std::uint32_t*>(rig.source.data());
    raise_late<<<1, 256, 0, rig.other>>>({payload, kWords, 1, rig.word(), 0});
    raise_late<<<1, 256, 0, rig.other>>>({payload, kWords, seed, rig.word(), 2'000'000});
    xs::check_cuda(cudaGetLastError(), "raise_late");
    queue.finish();
    std::vector<std::uint32_t> words(kWords);
    rig.target.read(0, std::as_writable_bytes(std::span(words)));
    for (int i = 0; i < kWords; ++i) {
      expect(words[static_cast<std::size_t>(i)] == seed + static_cast<std::uint32_t>(i),
             "round " + std::to_string(round) + ": word " + std::to_string(i) + " is not what was published");
    }
  }
}

void a_flag_that_does_not_come_is_named() {
  const Rig rig(GpuPlace::far);
  const auto sent = rig.fill(3);
  CopyQueue queue(rig.stream, {0.3e9});
  queue.wait_for(rig.word(), 5, "tile 7 of rank 1");
  queue.copy({rig.target.data(), rig.source.data(), kBytes});
  raise_late<<<1, 32, 0, rig.other>>>({nullptr, 0, 0, rig.word(), 0});
  const auto begin = Clock::now();
  std::string text;
  try {
    queue.finish();
  } catch (const std::exception& error) {
    text = error.what();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  expect(text.find("tile 7 of rank 1: expected 5, seen 1") != std::string::npos, "the report is: " + text);
  expect(seconds < 1, "it took " + std::to_string(seconds) + " s");
  queue.copy({rig.target.data(), rig.source.data(), kBytes});  // the stream goes on
  queue.finish();
  expect(rig.found() == sent, "bytes differ afterwards");
}

}  // namespace

int main() {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // see CopyQueue::wait_for
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::fprintf(stderr, "copy_engine_device_test: no GPU\n");
    return 3;
  }
  int num_failed = 0;
  const auto run = [&](const std::string& name, const std::function<void()>& one) {
    try {
      one();
      std::printf("ok %s\n", name.c_str());
    } catch (const std::exception& error) {
      ++num_failed;
      std::printf("FAILED %s: %s\n", name.c_str(), error.what());
    }
    std::fflush(stdout);
  };
  for (const auto place : {GpuPlace::own, GpuPlace::far}) {
    const std::string to = place == GpuPlace::own ? "own memory" : "far memory";
    run("copies to " + to, [&] { bytes_arrive(place, false); });
    run("a batch to " + to, [&] { bytes_arrive(place, true); });
    run("a copy to " + to + " waits for its flag", [&] { a_copy_waits_for_its_flag(place); });
  }
  run("a flag that does not come is named", a_flag_that_does_not_come_is_named);
  std::printf("%d failed\n", num_failed);
  return num_failed == 0 ? 0 : 1;
}
