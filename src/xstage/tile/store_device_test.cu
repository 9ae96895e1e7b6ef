// Every store path with every completion level writes exactly the bytes it was asked to, into the GPU's own memory and
// into mapped memory of the host; what is remote visible another SM reads; the pacer waits as its arithmetic says.
// A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.
// --small: few cases, for compute-sanitizer.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <cuda/atomic>
#include <exception>
#include <string>
#include <vector>

#include "xstage/core/random.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/tile/pacer.cuh"
#include "xstage/tile/store.cuh"

namespace {

using xs::StoreGroup;
using xs::StorePath;

constexpr int kMostBytes = 65536, kGuard = 4096, kThreads = 256;
constexpr unsigned char kGuardByte = 0xA5, kOverwritten = 0xEE;
enum class Level { issued, source_free, remote_visible };
constexpr const char* kLevels[] = {"issued", "source free", "remote visible"};

__host__ __device__ unsigned char payload(unsigned seed, int at) {
  return static_cast<unsigned char>((static_cast<unsigned>(at) * 2654435761u + seed * 40503u) >> 13);
}

struct Case {
  CUtensorMap rows;
  std::byte* base;
  std::int64_t offset;
  int bytes, copy_bytes, groups;
  Level level;
  unsigned seed;
  unsigned* flag;
  unsigned* errors;  // bytes that the reader found wrong; a large number if the flag never rose
};

// A group stores its part in two calls, and writes its source again as soon as the level allows.
template <StorePath path>
__device__ void store_part(const Case& of, std::byte* staging, const StoreGroup& group, int begin, int end) {
  for (int at = begin + group.rank; at < end; at += group.size) staging[at] = std::byte{payload(of.seed, at)};
  xs::source_ready<path>(group);
  const xs::StoreTarget target{of.base, &of.rows};
  const int middle = begin + (end - begin) / 2 / xs::kMapRowBytes * xs::kMapRowBytes;
  xs::store<path>(group, target, of.offset + begin, staging + begin, middle - begin, of.copy_bytes);
  xs::store<path>(group, target, of.offset + middle, staging + middle, end - middle, of.copy_bytes);
  if (of.level == Level::source_free) xs::wait_source_free<path>(group);
  if (of.level == Level::remote_visible) xs::wait_remote_visible<path>(group);
  if (of.level != Level::issued) {
    for (int at = begin + group.rank; at < end; at += group.size) staging[at] = std::byte{kOverwritten};
  }
  if (of.level == Level::remote_visible && group.leads()) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_system>(*of.flag).fetch_add(1, cuda::memory_order_relaxed);
  }
  if (of.level == Level::issued) xs::wait_source_free<path>(group);
}

// Waits for the flag, at most two seconds, and reads what it stands for.
__device__ void read_back(const Case& of) {
  constexpr unsigned kNever = 1u << 30;
  constexpr std::int64_t kBound = 2000000000;
  __shared__ bool raised;
  if (threadIdx.x == 0) {
    const cuda::atomic_ref<unsigned, cuda::thread_scope_system> flag(*of.flag);
    const auto begin = xs::gpu_nanos();
    do {
      raised = flag.load(cuda::memory_order_acquire) == static_cast<unsigned>(of.groups);
    } while (!raised && xs::gpu_nanos() - begin < kBound);
    if (!raised) atomicAdd(of.errors, kNever);
  }
  __syncthreads();
  if (!raised) return;
  for (int at = static_cast<int>(threadIdx.x); at < of.bytes; at += static_cast<int>(blockDim.x)) {
    if (of.base[of.offset + at] != std::byte{payload(of.seed, at)}) atomicAdd(of.errors, 1);
  }
}

template <StorePath path>
__global__ void __launch_bounds__(kThreads) store_kernel(const __grid_constant__ Case of) {
  extern __shared__ __align__(128) std::byte staging[];
  if (blockIdx.x == 1) return read_back(of);
  if (of.groups == 1) return store_part<path>(of, staging, StoreGroup::block(), 0, of.bytes);
  const int size = kThreads / 2, second = static_cast<int>(threadIdx.x) / size;
  const StoreGroup group{static_cast<int>(threadIdx.x) % size, size, 1 + second};
  const int middle = of.bytes / 2 / xs::kMapRowBytes * xs::kMapRowBytes;
  store_part<path>(of, staging, group, second == 0 ? 0 : middle, second == 0 ? middle : of.bytes);
}

template <StorePath path>
void launch(const Case& of) {
  const auto kernel = store_kernel<path>;
  xs::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes),
                 "shared memory");
  kernel<<<of.level == Level::remote_visible ? 2 : 1, kThreads, kMostBytes>>>(of);
  xs::check_cuda(cudaDeviceSynchronize(), "store_kernel");
}

class Results {
 public:
  void tell(const std::string& name, const std::string& fault) {
    std::printf("%s %s%s%s\n", fault.empty() ? "ok" : "FAILED", name.c_str(), fault.empty() ? "" : ": ", fault.c_str());
    (fault.empty() ? passed_ : failed_) += 1;
  }
  int finish() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  int passed_ = 0, failed_ = 0;
};

// One path, memory and level over all sizes; the first fault in words, empty if there is none.
template <StorePath path>
std::string stores_exactly(xs::GpuPlace place, Level level, bool small, int& num_cases) {
  const xs::GpuMemory target(0, place, kMostBytes + 2 * kGuard), flags(0, xs::GpuPlace::own, 2 * sizeof(unsigned));
  const std::vector<std::byte> clean(target.size(), std::byte{kGuardByte});
  std::vector<std::byte> found(target.size());
  constexpr int kUnit = xs::store_unit(path);
  std::vector<int> sizes{kUnit, 8192 + kUnit};
  if (!small)
    sizes = {
        kUnit, 3 * kUnit, 4096, 8192 - kUnit, 8192, 8192 + kUnit, 20000 / kUnit * kUnit, 32768, 60000 / kUnit * kUnit};
  for (const int bytes : sizes) {
    for (const int copy_bytes : {1024, 8192}) {
      for (const int groups : {1, 2}) {
        Case of{};
        of.base = target.data();
        of.offset = kGuard + (num_cases % 3) * kUnit;
        of.bytes = bytes;
        of.copy_bytes = copy_bytes;
        of.groups = groups;
        of.level = level;
        of.seed = static_cast<unsigned>(++num_cases);
        of.flag = reinterpret_cast<unsigned*>(flags.data());
        of.errors = of.flag + 1;
        if (path == StorePath::tensor) {
          of.rows = xs::map_rows(target.data(), static_cast<std::int64_t>(target.size()), copy_bytes);
        }
        target.write(0, clean);
        flags.write(0, std::vector<std::byte>(flags.size()));
        launch<path>(of);
        target.read(0, found);
        const std::string name = std::to_string(bytes) + " bytes at " + std::to_string(of.offset) + ", copies of " +
                                 std::to_string(copy_bytes) + ", groups " + std::to_string(groups);
        for (std::size_t at = 0; at < found.size(); ++at) {
          const auto inside = static_cast<std::int64_t>(at) - of.offset;
          const bool asked = inside >= 0 && inside < bytes;
          const auto expected = asked ? payload(of.seed, static_cast<int>(inside)) : kGuardByte;
          if (found[at] != std::byte{expected}) {
            return name + ": byte " + std::to_string(inside) + (asked ? " of the payload" : " outside") + " is wrong";
          }
        }
        unsigned words[2];
        flags.read(0, std::as_writable_bytes(std::span(words)));
        if (words[1] != 0) return name + ": the reader saw " + std::to_string(words[1]) + " wrong bytes";
      }
    }
  }
  return "";
}

template <StorePath path>
void check_path(Results& results, bool small) {
  for (const auto place : {xs::GpuPlace::own, xs::GpuPlace::far}) {
    for (const auto level : {Level::issued, Level::source_free, Level::remote_visible}) {
      int num_cases = 0;
      const auto fault = stores_exactly<path>(place, level, small, num_cases);
      results.tell(xs::to_string(path) + " to " + (place == xs::GpuPlace::own ? "own" : "far") + " memory, " +
                       kLevels[static_cast<int>(level)] + ", " + std::to_string(num_cases) + " cases",
                   fault);
    }
  }
}

XS_HD constexpr xs::BucketRates share() { return {{40}, {6}, {24576}}; }

struct Step {
  double bytes, other;  // ns between the end of a wait and the next question
};

// A worker in virtual time.
__host__ __device__ void drive_pacer(const Step* steps, int count, double* waits) {
  xs::Pacer pacer(share(), xs::Nanos{0});
  xs::Nanos now{0};
  for (int i = 0; i < count; ++i) {
    const xs::Bytes bytes{steps[i].bytes};
    now += xs::Nanos{steps[i].other};
    const auto wait = pacer.wait(bytes, now);
    waits[i] = wait.value;
    now += wait;
    pacer.begin(bytes, now);
  }
}

__global__ void pacer_kernel(const Step* steps, int count, double* waits) { drive_pacer(steps, count, waits); }

__global__ void pace_kernel(int count, xs::GigaHertz clock, double* nanos) {
  xs::SmPacer pacer(share(), clock);
  const auto begin = pacer.now();
  for (int i = 0; i < count; ++i) pacer.pace(xs::Bytes{8192});
  *nanos = (pacer.now() - begin).value;
}

std::string pacer_equals_host() {
  constexpr int kCount = 400;
  const xs::RandomKey key{7, 0};
  std::vector<Step> steps;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    steps.push_back(
        {1.0 + static_cast<double>(key.below(2 * i, 24576)), static_cast<double>(key.below(2 * i + 1, 4000))});
  }
  const xs::GpuMemory given(0, xs::GpuPlace::own, kCount * sizeof(Step)), told(0, xs::GpuPlace::own, kCount * 8);
  given.write(0, std::as_bytes(std::span(steps)));
  pacer_kernel<<<1, 1>>>(reinterpret_cast<const Step*>(given.data()), kCount, reinterpret_cast<double*>(told.data()));
  xs::check_cuda(cudaDeviceSynchronize(), "pacer_kernel");
  std::vector<double> found(kCount), expected(kCount);
  told.read(0, std::as_writable_bytes(std::span(found)));
  drive_pacer(steps.data(), kCount, expected.data());
  // The device contracts a * b + c into one rounding, the host does not.
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!(std::abs(found[i] - expected[i]) <= 1e-6)) {
      return "wait " + std::to_string(i) + ": " + std::to_string(found[i]) + " ns, on the host " +
             std::to_string(expected[i]);
    }
  }
  return "";
}

std::string pacer_keeps_the_rate() {
  constexpr int kCount = 400;
  const double least = (kCount * 8192 - share().capacity.value) / share().drain.value;
  const xs::GpuMemory told(0, xs::GpuPlace::own, 8);
  pace_kernel<<<1, 1>>>(kCount, xs::find_gpus().front().clock, reinterpret_cast<double*>(told.data()));
  xs::check_cuda(cudaDeviceSynchronize(), "pace_kernel");
  double nanos = 0;
  told.read(0, std::as_writable_bytes(std::span(&nanos, 1)));
  std::printf("   %d pieces of 8192 bytes in %.0f ns, at least %.0f\n", kCount, nanos, least);
  if (nanos < least * (1 - 1e-9)) return "the share was exceeded";
  return nanos > least * 1.03 ? "the share was not used" : "";
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::fprintf(stderr, "store_device_test: no GPU here\n");
    return 3;
  }
  Results results;
  try {
    check_path<StorePath::st16>(results, small);
    check_path<StorePath::st4>(results, small);
    check_path<StorePath::bulk>(results, small);
    check_path<StorePath::tensor>(results, small);
    results.tell("pacer arithmetic equals the host's", pacer_equals_host());
    results.tell("pacer keeps the rate of its share", pacer_keeps_the_rate());
  } catch (const std::exception& error) {
    results.tell("to the end", error.what());
  }
  return results.finish();
}
