// Bursts of SMs: every burst of every worker is recorded, on SMs of their own, as long as bytes and gaps ask;
// neighbours are told. A plain program: exit 0 passed, 1 failed, 3 no GPU. --small: few cases, for compute-sanitizer.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/probe/neighbour_kernel.hpp"

namespace {

using xs::Completion;
using xs::StorePath;

constexpr std::int64_t kWindow = 65536;  // smaller than some bursts, which go round
constexpr std::uint32_t kUntouched = 0xFFFFFFFF;

template <class T>
std::vector<T> read_all(const xs::GpuMemory& memory, std::size_t count) {
  std::vector<T> values(count);
  memory.read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string recorded(StorePath path, xs::GpuPlace place, const xs::BurstPattern& pattern, const xs::GpuInfo& gpu) {
  const auto workers = static_cast<std::size_t>(pattern.workers), bursts = static_cast<std::size_t>(pattern.bursts);
  const xs::GpuMemory target(0, place, kWindow * workers);
  const xs::GpuMemory records(0, xs::GpuPlace::own, sizeof(xs::BurstRecord) * (workers * bursts + 1));
  const xs::GpuMemory sms(0, xs::GpuPlace::own, sizeof(std::uint32_t) * (workers + 1));
  records.write(0, std::vector<std::byte>(records.size(), std::byte{0xFF}));
  sms.write(0, std::vector<std::byte>(sms.size(), std::byte{0xFF}));
  const xs::StoreWindows windows{path, 8192, target.data(), kWindow, pattern.workers};
  xs::launch_bursts(windows, pattern, reinterpret_cast<xs::BurstRecord*>(records.data()),
                    reinterpret_cast<std::uint32_t*>(sms.data()), nullptr);
  xs::check_cuda(cudaDeviceSynchronize(), "bursts");
  const auto found = read_all<xs::BurstRecord>(records, workers * bursts + 1);
  const auto places = read_all<std::uint32_t>(sms, workers + 1);
  if (found.back().issue != kUntouched || places.back() != kUntouched) return "a record too many";
  if (std::set<std::uint32_t>(places.begin(), places.end() - 1).size() != workers) return "two workers on one SM";
  // No SM stores more than 64 bytes a cycle, and no memory answers within 100 cycles.
  const auto least_issue = xs::is_asynchronous(path) ? 1u : static_cast<std::uint32_t>(pattern.bytes.value / 64);
  for (std::size_t i = 0; i < workers * bursts; ++i) {
    const auto& record = found[i];
    const bool first = i % bursts == 0;
    const auto at = "worker " + std::to_string(i / bursts) + ", burst " + std::to_string(i % bursts) + ": ";
    if (record.issue == kUntouched || record.issue < least_issue) return at + "issue " + std::to_string(record.issue);
    if (first ? record.gap != 0 : record.gap < pattern.gap.value) return at + "gap " + std::to_string(record.gap);
    if (pattern.await == Completion::issued && record.done != 0) return at + "done " + std::to_string(record.done);
    if (pattern.await == Completion::remote_visible && record.done < 100)
      return at + "done " + std::to_string(record.done);
  }
  double issue = 0, done = 0;
  for (std::size_t i = 0; i < workers * bursts; ++i) issue += found[i].issue, done += found[i].done;
  const double count = static_cast<double>(workers * bursts);
  std::printf("   issue %.0f, done %.0f cycles\n", issue / count, done / count);
  const auto bytes = read_all<std::uint32_t>(target, kWindow * workers / 4);
  const auto touched = std::min<std::size_t>(kWindow, static_cast<std::size_t>(pattern.bytes.value)) / 4;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    for (std::size_t word = 0; word < kWindow / 4; ++word) {
      const auto expected = word < touched ? static_cast<std::uint32_t>(word * 4 % xs::kStagingBytes) : 0;
      if (bytes[worker * (kWindow / 4) + word] != expected) {
        return "worker " + std::to_string(worker) + ", word " + std::to_string(word) + " is wrong";
      }
    }
  }
  return "";
}

std::string neighbours(StorePath path, bool paced, const xs::GpuInfo& gpu) {
  constexpr int kStorers = 2, kLoaders = 4, kPiece = 32768;
  const xs::GpuMemory target(0, xs::GpuPlace::far, kWindow * kStorers), operands(0, xs::GpuPlace::own, 1 << 24);
  const xs::GpuMemory records(0, xs::GpuPlace::own, sizeof(xs::NeighbourRecord) * (kStorers + kLoaders));
  xs::NeighbourRun run{};
  run.windows = {path, 8192, target.data(), kWindow, kStorers};
  run.storers = kStorers;
  run.loaders = kLoaders;
  run.operands = operands.data();
  run.operand_bytes = static_cast<std::int64_t>(operands.size());
  run.piece_bytes = kPiece;
  run.paced = paced;
  run.share = {xs::BytesPerNano{0}, xs::BytesPerNano{1}, xs::Bytes{2 * kPiece}};
  run.clock = gpu.clock;
  run.duration = xs::Nanos{2e6};
  xs::launch_neighbours(run, reinterpret_cast<xs::NeighbourRecord*>(records.data()), nullptr);
  xs::check_cuda(cudaDeviceSynchronize(), "neighbours");
  const auto found = read_all<xs::NeighbourRecord>(records, kStorers + kLoaders);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [bytes, nanos] = found[i];
    const double rate = static_cast<double>(bytes) / static_cast<double>(nanos);
    std::printf("   %s %zu: %.1f GB/s\n", i < kStorers ? "storer" : "loader", i, rate);
    if (nanos < 1900000) return "it ended before its time";
    if (bytes <= 0) return "it did nothing";
    // Of a share of one byte per ns the pieces that may be outstanding at the begin come on top.
    if (paced && i < kStorers && (rate > 1.05 || rate < 0.9)) return "a paced storer is off its share of 1 GB/s";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::fprintf(stderr, "burst_device_test: no GPU here\n");
    return 3;
  }
  int num_passed = 0, num_failed = 0;
  const auto tell = [&](const std::string& name, const std::string& fault) {
    std::printf("%s %s%s%s\n", fault.empty() ? "ok" : "FAILED", name.c_str(), fault.empty() ? "" : ": ", fault.c_str());
    (fault.empty() ? num_passed : num_failed) += 1;
  };
  try {
    const auto gpu = xs::find_gpus().front();
    const std::vector<int> workers = small ? std::vector{2} : std::vector{1, 16, gpu.num_sms};
    for (const auto path : {StorePath::st16, StorePath::st4, StorePath::bulk, StorePath::tensor}) {
      for (const auto place : {xs::GpuPlace::own, xs::GpuPlace::far}) {
        for (const int count : workers) {
          for (const auto await : {Completion::issued, Completion::source_free, Completion::remote_visible}) {
            const xs::BurstPattern pattern{count, xs::Bytes{small ? 16384.0 : 98304.0}, xs::Cycles{1000}, small ? 2 : 5,
                                           await};
            tell(xs::to_string(path) + (place == xs::GpuPlace::own ? " to own memory, " : " to far memory, ") +
                     std::to_string(count) + " SMs, level " + std::to_string(static_cast<int>(await)),
                 recorded(path, place, pattern, gpu));
          }
        }
      }
    }
    for (const auto path : {StorePath::st16, StorePath::bulk}) {
      for (const bool paced : {false, true}) {
        if (!small)
          tell("neighbours of " + xs::to_string(path) + (paced ? ", paced" : ""), neighbours(path, paced, gpu));
      }
    }
  } catch (const std::exception& error) {
    tell("to the end", error.what());
  }
  std::printf("%d passed, %d failed\n", num_passed, num_failed);
  return num_failed == 0 ? 0 : 1;
}
