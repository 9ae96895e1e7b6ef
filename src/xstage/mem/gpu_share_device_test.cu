// Processes that share the memory of GPUs: what kernels store into a peer's part is there, failures are the same for
// all ranks, a lost rank is noticed, no memory is lost. With several GPUs, rank r runs on GPU r modulo their number.
// A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu_share.hpp"
#include "xstage/mem/rank_sockets.hpp"
#include "xstage/mem/run_ranks.hpp"

namespace {

using xs::GpuShare;
using xs::GpuShareBy;
using xs::RankSockets;
using Clock = std::chrono::steady_clock;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What the call throws must contain every one of `words`.
void expect_failure(const std::function<void()>& call, const std::vector<std::string>& words) {
  std::string text;
  try {
    call();
  } catch (const std::exception& error) {
    text = error.what();
  }
  expect(!text.empty(), "no error; expected one about " + words.front());
  for (const auto& word : words) expect(text.find(word) != std::string::npos, "\"" + text + "\" lacks " + word);
}

// --- ranks that are processes; this process itself never calls CUDA ---

int num_gpus = 0;

int device_of(int rank) { return rank % num_gpus; }

// Runs `body` in a process of its own and returns what it returns.
std::int64_t in_a_process(const std::function<std::int64_t()>& body) {
  xs::Layout layout;
  const auto result = layout.add("result", sizeof(std::int64_t));
  const xs::World world(layout, 1, xs::RanksAre::processes);
  xs::run_ranks(world, [&](xs::Rank rank) { rank.local_as<std::int64_t>(result)[0] = body(); });
  return world.rank(0).local_as<std::int64_t>(result)[0];
}

void with_ranks(int num_ranks, const std::function<void(RankSockets&)>& body) {
  xs::Layout layout;
  const auto region = RankSockets::reserve(layout);
  const xs::World world(layout, num_ranks, xs::RanksAre::processes);
  xs::run_ranks(world, [&](xs::Rank rank) {
    RankSockets sockets(rank, region, {.timeout = xs::Nanos{20e9}});
    body(sockets);
  });
}

// --- patterns ---

constexpr std::int64_t kSliceWords = 700'001;  // that a rank stores into each part; no whole page, not even of 16 bytes

__host__ __device__ std::uint32_t word_of(int source, int target, std::int64_t index) {
  return static_cast<std::uint32_t>(index * 2654435761u) ^ static_cast<std::uint32_t>(source * 64 + target + 1) << 20;
}

__global__ void store_slice(std::uint32_t* part, int source, int target) {
  const auto stride = std::int64_t{gridDim.x} * blockDim.x;
  for (auto i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < kSliceWords; i += stride) {
    part[source * kSliceWords + i] = word_of(source, target, i);
  }
}

__global__ void count_differing(const std::uint32_t* part, int num_sources, int target, bool zeroed,
                                unsigned long long* count) {
  const auto stride = std::int64_t{gridDim.x} * blockDim.x;
  const auto end = num_sources * kSliceWords;
  for (auto i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += stride) {
    const auto source = static_cast<int>(i / kSliceWords);
    const auto expected = zeroed ? 0 : word_of(source, target, i % kSliceWords);
    if (part[i] != expected) atomicAdd(count, 1ull);
  }
}

std::uint32_t* words(std::byte* part) { return reinterpret_cast<std::uint32_t*>(part); }

std::size_t part_bytes(int num_ranks) {
  return static_cast<std::size_t>(num_ranks * kSliceWords) * sizeof(std::uint32_t);
}

void expect_part(std::byte* part, int num_ranks, int target, bool zeroed) {
  unsigned long long* count = nullptr;
  unsigned long long differing = 0;
  xs::check_cuda(cudaMalloc(&count, sizeof *count), "a counter");
  xs::check_cuda(cudaMemset(count, 0, sizeof *count), "a counter");
  count_differing<<<64, 256>>>(words(part), num_ranks, target, zeroed, count);
  xs::check_cuda(cudaMemcpy(&differing, count, sizeof differing, cudaMemcpyDeviceToHost), "count_differing");
  cudaFree(count);
  expect(differing == 0, "part of rank " + std::to_string(target) + ": " + std::to_string(differing) +
                             " words differ, " + (zeroed ? "zeros expected" : "the pattern expected"));
}

void store_into_all(RankSockets& sockets, const GpuShare& share) {
  for (int target = 0; target < sockets.num_ranks(); ++target) {
    store_slice<<<64, 256>>>(words(share.parts()[static_cast<std::size_t>(target)]), sockets.rank(), target);
  }
  xs::check_cuda(cudaGetLastError(), "store_slice");
  xs::check_cuda(cudaDeviceSynchronize(), "store_slice");
}

void share_and_verify(RankSockets& sockets, GpuShareBy by) {
  const int num_ranks = sockets.num_ranks(), own = sockets.rank();
  const GpuShare share(sockets, device_of(own), by, part_bytes(num_ranks));
  const auto part = [&](int rank) { return share.parts()[static_cast<std::size_t>(rank)]; };
  expect_part(part(own), num_ranks, own, true);
  sockets.meet();
  store_into_all(sockets, share);
  sockets.meet();
  for (int rank = 0; rank < num_ranks; ++rank) expect_part(part(rank), num_ranks, rank, false);
  // Once more without a kernel.
  std::vector<std::uint32_t> copy(static_cast<std::size_t>(num_ranks * kSliceWords));
  xs::check_cuda(cudaMemcpy(copy.data(), part(own), part_bytes(num_ranks), cudaMemcpyDeviceToHost), "copy");
  for (std::int64_t i = 0; i < num_ranks * kSliceWords; ++i) {
    const auto source = static_cast<int>(i / kSliceWords);
    expect(copy[static_cast<std::size_t>(i)] == word_of(source, own, i % kSliceWords),
           "word " + std::to_string(i) + " of the own part, copied, differs");
  }
}

// --- cases ---

void stores_reach_every_part(int num_ranks, GpuShareBy by) {
  with_ranks(num_ranks, [&](RankSockets& sockets) { share_and_verify(sockets, by); });
}

std::int64_t free_bytes(int device) {
  std::size_t available = 0, total = 0;
  xs::check_cuda(cudaSetDevice(device), "choosing a GPU");
  xs::check_cuda(cudaMemGetInfo(&available, &total), "memory of a GPU");
  return static_cast<std::int64_t>(available);
}

void expect_no_less(std::int64_t before, std::int64_t now, std::int64_t slack) {
  expect(now >= before - slack, std::to_string(before - now) + " bytes of GPU memory are missing");
}

void made_and_dropped_again_and_again(GpuShareBy by) {
  with_ranks(2, [&](RankSockets& sockets) {
    std::int64_t before = 0;
    for (int round = 0; round <= 30; ++round) {
      { const GpuShare share(sockets, device_of(sockets.rank()), by, std::size_t{16} << 20); }
      sockets.meet();  // each has given back its own
      if (round == 0) before = free_bytes(device_of(sockets.rank()));
      if (round == 30) expect_no_less(before, free_bytes(device_of(sockets.rank())), 8 << 20);
      sockets.meet();
    }
  });
}

void failures_are_the_same_for_all_and_leave_the_ranks_together(GpuShareBy by) {
  with_ranks(2, [&](RankSockets& sockets) {
    const int device = device_of(sockets.rank());
    const auto refuses = [&](std::size_t bytes, const std::vector<std::string>& why) {
      expect_failure([&] { GpuShare(sockets, device, by, bytes); }, why);
    };
    refuses(sockets.rank() == 1 ? 2000 : 1000, {"all ranks need the same"});
    refuses(std::size_t{1} << 46, {"rank 0: ", "bytes of GPU", "to share by " + xs::to_string(by)});
    refuses(sockets.rank() == 1 ? std::size_t{1} << 46 : 1000, {"rank 1: ", "to share by " + xs::to_string(by)});
    refuses(0, {"at least one byte"});
    expect_failure([&] { GpuShare(sockets, sockets.rank() == 0 ? 4096 : device, by, 1000); }, {"rank 0: ", "GPU 4096"});
    share_and_verify(sockets, by);
  });
}

void fabric_or_why_not() {
  with_ranks(2, [&](RankSockets& sockets) {
    std::string answer = "works";
    try {
      share_and_verify(sockets, GpuShareBy::fabric);
    } catch (const std::exception& error) {
      answer = error.what();
    }
    if (sockets.rank() == 0) std::printf("   fabric: %s\n", answer.c_str());
    expect(answer == "works" || answer.find("by fabric") != std::string::npos, answer);
    share_and_verify(sockets, GpuShareBy::file);
  });
}

void another_user_gets_nothing() {
  xs::Layout layout;
  const auto region = RankSockets::reserve(layout);
  const xs::World world(layout, 2, xs::RanksAre::processes);
  const auto run = [&] {
    xs::run_ranks(world, [&](xs::Rank rank) {
      const auto other = static_cast<uid_t>(::geteuid() + rank.rank());
      RankSockets sockets(rank, region, {.timeout = xs::Nanos{2e9}, .user = other});
      const GpuShare share(sockets, 0, GpuShareBy::file, 1000);
    });
  };
  expect_failure(run, {"rank 1 expects processes of user", "start all ranks as one user"});
}

void a_lost_rank_is_noticed(GpuShareBy by) {
  const auto run = [&] {
    with_ranks(2, [&](RankSockets& sockets) {
      const GpuShare share(sockets, device_of(sockets.rank()), by, part_bytes(2));
      store_into_all(sockets, share);
      sockets.meet();
      if (sockets.rank() == 1) ::raise(SIGKILL);
      const auto begin = Clock::now();
      expect_failure([&] { sockets.meet(); }, {"waits for rank 1, which is gone"});
      expect(seconds_since(begin) < 10, "noticed after " + std::to_string(seconds_since(begin)) + " s");
      expect_part(share.parts()[0], 2, 0, false);  // the own part is as it was
    });
  };
  expect_failure(run, {"rank 1 (process", "signal 9"});
}

struct Case {
  std::string name;
  std::function<void()> run;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto by : {GpuShareBy::ipc, GpuShareBy::file}) {
    const auto way = " by " + xs::to_string(by);
    for (const int num_ranks : {2, 4}) {
      all.push_back({std::to_string(num_ranks) + " processes store into each other's part" + way,
                     [=] { stores_reach_every_part(num_ranks, by); }});
    }
    all.push_back({"made and dropped 31 times" + way, [=] { made_and_dropped_again_and_again(by); }});
    all.push_back({"failures are the same for all ranks" + way,
                   [=] { failures_are_the_same_for_all_and_leave_the_ranks_together(by); }});
  }
  all.push_back({"fabric, or why not", fabric_or_why_not});
  all.push_back({"another user gets nothing", another_user_gets_nothing});
  for (const auto by : {GpuShareBy::ipc, GpuShareBy::file}) {
    all.push_back({"a lost rank is noticed" + (" by " + xs::to_string(by)), [=] { a_lost_rank_is_noticed(by); }});
  }
  return all;
}

std::int64_t run_a_kernel() {
  std::byte* part = nullptr;
  xs::check_cuda(cudaMalloc(&part, part_bytes(1)), "memory of a GPU");
  xs::check_cuda(cudaMemset(part, 0, part_bytes(1)), "memory of a GPU");
  expect_part(part, 1, 0, true);
  return 0;
}

// The driver takes its time to clean up behind a process that was killed.
void nothing_is_left(std::int64_t before) {
  const auto begin = Clock::now();
  std::int64_t now = 0;
  do {
    now = in_a_process([] { return free_bytes(0); });
    if (now >= before) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (seconds_since(begin) < 10);
  std::printf("   free before %lld, after %lld bytes\n", static_cast<long long>(before), static_cast<long long>(now));
  expect_no_less(before, now, 8 << 20);
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ::alarm(200);  // a hang ends here, and with this process all ranks
  std::int64_t before = 0;
  try {
    num_gpus = static_cast<int>(in_a_process([] {
      int count = 0;
      xs::check_cuda(cudaGetDeviceCount(&count), "no GPU here");
      return std::int64_t{count};
    }));
    in_a_process(run_a_kernel);  // what the first one takes for good is not ours
    before = in_a_process([] { return free_bytes(0); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_share_device_test: %s\n", error.what());
    return 3;
  }
  auto all = cases();
  all.push_back({"nothing is left", [=] { nothing_is_left(before); }});
  int num_failed = 0;
  for (const auto& [name, run] : all) {
    const auto begin = Clock::now();
    try {
      run();
      std::printf("ok %s (%.1f s)\n", name.c_str(), seconds_since(begin));
    } catch (const std::exception& error) {
      ++num_failed;
      std::printf("FAILED %s: %s\n", name.c_str(), error.what());
    }
  }
  std::printf("%d passed, %d failed\n", static_cast<int>(all.size()) - num_failed, num_failed);
  return num_failed == 0 ? 0 : 1;
}
