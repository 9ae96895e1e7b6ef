#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/mem/gpu_stream.hpp"
#include "xstage/probe/burst_kernel.hpp"
#include "xstage/probe/gpu_target.hpp"
#include "xstage/probe/neighbour_kernel.hpp"
#include "xstage/tile/copy_engine.hpp"

namespace xs {
namespace {

constexpr std::int64_t kWindow = 1 << 20;  // of each SM: all of them together are more than the GPU caches
constexpr std::int64_t kMostCopied = 1 << 29;

// The first other GPU whose memory `device` reaches.
int find_peer(int device) {
  const int count = static_cast<int>(find_gpus().size());
  for (int other = 0; other < count; ++other) {
    int reached = 0;
    if (other != device) check_cuda(cudaDeviceCanAccessPeer(&reached, device, other), "asking for peer access");
    if (reached != 0) return other;
  }
  fail(ErrorKind::unavailable, "--to peer: GPU {} of {} reaches the memory of no other one", device, count);
}

// `count` records in `memory`.
template <class Record>
std::vector<Record> read_records(const GpuMemory& memory, std::size_t count) {
  std::vector<Record> records(count);
  memory.read(0, std::as_writable_bytes(std::span(records)));
  return records;
}

// Of an SM under a light load: cycles over the GPU's own time, once it has stopped rising.
GigaHertz measure_clock(int device, const GpuStream& stream) {
  constexpr int kMost = 50;
  const GpuMemory record(device, GpuPlace::own, sizeof(ClockRecord));
  GigaHertz clock{0};
  for (int i = 0; i < kMost; ++i) {
    launch_clock(reinterpret_cast<ClockRecord*>(record.data()), stream.get());
    stream.finish();
    const auto ticks = read_records<ClockRecord>(record, 1).front();
    const auto before = clock;
    clock = {static_cast<double>(ticks.cycles) / static_cast<double>(ticks.nanos)};
    if (std::abs(clock / before - 1) < 0.003) break;
  }
  return clock;
}

// Memory that the port's bytes go to, and what the model calls it.
struct Destination {
  std::string name;
  GpuMemory memory;
};

Destination make_destination(const GpuPort& port, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (port.to == "host") return {"host", GpuMemory(port.device, GpuPlace::far, size)};
  if (port.to == "hbm") return {"hbm", GpuMemory(port.device, GpuPlace::own, size)};
  const int peer = find_peer(port.device);
  Destination destination{"peer", GpuMemory(peer, GpuPlace::own, size)};
  check_cuda(cudaSetDevice(port.device), "choosing a GPU");
  const auto status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
  } else {
    check_cuda(status, "peer access");
  }
  int atomics = 0;  // which cross NVLink only
  check_cuda(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, port.device, peer),
             "asking for a peer's atomics");
  if (atomics != 0) destination.name = "nvlink";
  return destination;
}

std::string path_name(const GpuPort& port) {
  const bool copies = !is_copy_engine(port) && is_asynchronous(parse_store_path(port.path));
  return copies ? fmt::format("{}{}", port.path, port.copy_bytes) : port.path;
}

// Stores by SMs.
class StoringGpu {
 public:
  explicit StoringGpu(const GpuPort& port)
      : info_(gpu_info(port.device)),
        stream_(port.device),
        clock_(measure_clock(port.device, stream_)),
        destination_(make_destination(port, kWindow * info_.num_sms)),
        windows_{parse_store_path(port.path), port.copy_bytes, destination_.memory.data(), kWindow, info_.num_sms} {}

  const GpuInfo& info() const { return info_; }
  const GpuStream& stream() const { return stream_; }
  GigaHertz clock() const { return clock_; }
  const std::string& dst() const { return destination_.name; }
  const StoreWindows& windows() const { return windows_; }

 private:
  GpuInfo info_;
  GpuStream stream_;
  GigaHertz clock_;
  Destination destination_;
  StoreWindows windows_;
};

class BurstPort {
 public:
  explicit BurstPort(const GpuPort& port)
      : gpu_(port),
        records_(port.device, GpuPlace::own, sizeof(BurstRecord) * kMostBursts * count(gpu_.info().num_sms)),
        sms_(port.device, GpuPlace::own, sizeof(std::uint32_t) * count(gpu_.info().num_sms)) {}

  const StoringGpu& gpu() const { return gpu_; }

  BurstTimes run(const BurstPattern& pattern) const {
    launch(pattern);
    BurstTimes mean{};
    const auto records = read_records<BurstRecord>(records_, count(pattern.workers) * count(pattern.bursts));
    for (const auto& record : records) {
      mean.gap += Cycles{static_cast<double>(record.gap)};
      mean.issue += Cycles{static_cast<double>(record.issue)};
      mean.done += Cycles{static_cast<double>(record.done)};
    }
    const double bursts = static_cast<double>(records.size());
    return {mean.issue / bursts, mean.done / bursts, mean.gap / std::max(1.0, bursts - pattern.workers)};
  }

  std::vector<int> placement(int workers) const {
    launch({workers, Bytes{kMapRowBytes}, Cycles{0}, 1, Completion::issued});
    const auto sms = read_records<std::uint32_t>(sms_, count(workers));
    return {sms.begin(), sms.end()};
  }

 private:
  static std::size_t count(int value) { return static_cast<std::size_t>(value); }

  void launch(const BurstPattern& pattern) const {
    require(pattern.workers >= 1 && pattern.workers <= gpu_.info().num_sms && pattern.bursts >= 1 &&
                pattern.bursts <= kMostBursts,
            "{} workers and {} bursts: expected up to {} and {}", pattern.workers, pattern.bursts, gpu_.info().num_sms,
            kMostBursts);
    launch_bursts(gpu_.windows(), pattern, reinterpret_cast<BurstRecord*>(records_.data()),
                  reinterpret_cast<std::uint32_t*>(sms_.data()), gpu_.stream().get());
    gpu_.stream().finish();
  }

  StoringGpu gpu_;
  GpuMemory records_, sms_;
};

// Copies by the copy engine, `pattern.bursts` of them one behind the other, each behind a wait for a flag that is
// raised already, or in one batch.
class CopyPort {
 public:
  explicit CopyPort(const GpuPort& port)
      : info_(gpu_info(port.device)),
        stream_(port.device),
        clock_(measure_clock(port.device, stream_)),
        source_(port.device, GpuPlace::own, kMostCopied),
        flag_(port.device, GpuPlace::own, sizeof(Word)),
        destination_(make_destination(port, kMostCopied)),
        path_(port.path) {}

  const GpuInfo& info() const { return info_; }
  GigaHertz clock() const { return clock_; }
  const std::string& dst() const { return destination_.name; }

  BurstTimes run(const BurstPattern& pattern) const {
    const auto bytes = static_cast<std::size_t>(pattern.bytes.value);
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < static_cast<std::size_t>(pattern.bursts); ++i) {
      const std::size_t at = i * bytes % static_cast<std::size_t>(kMostCopied);
      copies.push_back({destination_.memory.data() + at, source_.data() + at, bytes});
    }
    CopyQueue queue(stream_.get());
    const auto queue_all = [&] {
      if (path_ == "ce_batch") return queue.copy_batch(copies);
      for (const auto& one : copies) {
        if (path_ == "ce_wait") queue.wait_for(reinterpret_cast<Word*>(flag_.data()), 0, "a raised flag");
        queue.copy(one);
      }
    };
    return {stream_.time(queue_all) * clock_ / pattern.bursts, Cycles{0}, Cycles{0}};
  }

 private:
  GpuInfo info_;
  GpuStream stream_;
  GigaHertz clock_;
  GpuMemory source_, flag_;
  Destination destination_;
  std::string path_;
};

// From 4 KiB to 512 MiB; so many in a row that a launch is a small part of them, and never more than fit.
std::vector<BurstPattern> copy_patterns() {
  std::vector<BurstPattern> patterns;
  for (std::int64_t bytes = 4096; bytes <= kMostCopied; bytes *= 2) {
    const auto copies = static_cast<int>(std::clamp<std::int64_t>((1 << 26) / bytes, 1, 32));
    patterns.push_back({1, Bytes{static_cast<double>(bytes)}, Cycles{0}, copies, Completion::issued});
  }
  return patterns;
}

// Stores and loads side by side.
class NeighbourPort {
 public:
  explicit NeighbourPort(const GpuPort& port)
      : gpu_(port),
        operands_(port.device, GpuPlace::own, kFromMemory),
        records_(port.device, GpuPlace::own, sizeof(NeighbourRecord) * static_cast<std::size_t>(gpu_.info().num_sms)) {}

  const StoringGpu& gpu() const { return gpu_; }

  NeighbourRates run(const NeighbourPattern& pattern) const {
    // In pieces of which each storer may have two outstanding: small enough for any port that has been measured, and
    // large enough that a storer that is a little late loses nothing.
    constexpr int kOutstanding = 1 << 19, kLeastPiece = 2048;
    const int storers = std::max(1, pattern.storers);
    const int piece = std::clamp(kOutstanding / 2 / storers / kLeastPiece * kLeastPiece, kLeastPiece, kStagingBytes);
    NeighbourRun run{};
    run.windows = gpu_.windows();
    run.storers = pattern.storers;
    run.loaders = pattern.loaders;
    run.operands = operands_.data();
    run.operand_bytes = pattern.from_cache ? kFromCache : kFromMemory;
    run.piece_bytes = piece;
    run.paced = pattern.pace > BytesPerNano{0};
    run.share = {BytesPerNano{0}, pattern.pace / storers, Bytes{2.0 * piece}};
    run.clock = gpu_.clock();
    run.duration = Nanos{5e6};
    const auto workers = static_cast<std::size_t>(pattern.storers + pattern.loaders);
    const std::vector<std::byte> zeros(sizeof(NeighbourRecord) * workers);
    records_.write(0, zeros);
    launch_neighbours(run, reinterpret_cast<NeighbourRecord*>(records_.data()), gpu_.stream().get());
    gpu_.stream().finish();
    const auto records = read_records<NeighbourRecord>(records_, workers);
    NeighbourRates rates{};
    for (std::size_t i = 0; i < workers; ++i) {
      const bool stores = i < static_cast<std::size_t>(pattern.storers);
      check(records[i].bytes >= 0 && records[i].nanos > 0, "a loader has read what nobody wrote");
      (stores ? rates.store : rates.load) +=
          Bytes{static_cast<double>(records[i].bytes)} / Nanos{static_cast<double>(records[i].nanos)};
    }
    return rates;
  }

 private:
  static constexpr std::int64_t kFromCache = 1 << 24, kFromMemory = std::int64_t{1} << 31;
  StoringGpu gpu_;
  GpuMemory operands_, records_;
};

std::string today() {
  const auto days = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(days);
  return fmt::format("{:04d}-{:02d}-{:02d}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

}  // namespace

ProbeTarget gpu_target(const GpuPort& port) {
  require_port(port);
  if (is_copy_engine(port)) {
    const auto copies = std::make_shared<CopyPort>(port);
    ProbeTarget target{copies->info().name, path_name(port), copies->dst(), copies->clock(),
                       [copies](const BurstPattern& pattern) { return copies->run(pattern); }};
    target.num_sms = copies->info().num_sms;
    target.patterns = copy_patterns();
    return target;
  }
  const auto bursts = std::make_shared<BurstPort>(port);
  const auto& gpu = bursts->gpu();
  ProbeTarget target{gpu.info().name, path_name(port), gpu.dst(), gpu.clock(),
                     [bursts](const BurstPattern& pattern) { return bursts->run(pattern); }};
  target.num_sms = gpu.info().num_sms;
  const auto path = gpu.windows().path;
  // The first bursts that find the port full wait longer than any after them: a short row tells of little else.
  target.bursts_in_a_row = 32;
  target.grain = {static_cast<double>(is_asynchronous(path) ? port.copy_bytes : store_unit(path))};
  target.placement = [bursts](int workers) { return bursts->placement(workers); };
  return target;
}

NeighbourTarget neighbour_target(const GpuPort& port) {
  require_port(port);
  require(!is_copy_engine(port), "--path {}: neighbours of storing SMs need a store path: st16, st4, bulk or tensor",
          port.path);
  const auto neighbours = std::make_shared<NeighbourPort>(port);
  const auto& gpu = neighbours->gpu();
  return {gpu.info().name, path_name(port), gpu.dst(), gpu.info().num_sms,
          [neighbours](const NeighbourPattern& pattern) { return neighbours->run(pattern); }};
}

std::vector<GpuPort> ports_on_offer(int device) {
  std::vector<std::string> destinations{"host", "hbm"};
  try {
    find_peer(device);
    destinations.emplace_back("peer");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
  }
  std::vector<GpuPort> ports;
  for (const auto& to : destinations) {
    for (const char* path : {"st16", "st4", "bulk", "tensor", "ce", "ce_batch", "ce_wait"})
      ports.push_back({device, to, path});
  }
  return ports;
}

Machine gpu_machine(int device) {
  const auto info = gpu_info(device);
  Machine machine;
  for (const auto& name : embedded_machines()) {
    auto known = load_machine(name);
    if (known.chip == info.name && known.num_sms == info.num_sms) machine = std::move(known);
  }
  machine.ports.clear();
  if (machine.name.empty()) machine.name = info.name;
  machine.chip = info.name;
  machine.num_sms = info.num_sms;
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "asking for the driver's version");
  machine.driver = fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  machine.date = today();
  const NeighbourPort port({device, "hbm"});
  machine.sm_clock = port.gpu().clock();
  Repeats loads;
  for (int i = 0; i < 7; ++i) loads.add(port.run({0, info.num_sms, false}).load.value);
  machine.memory = {loads.median()};
  machine.memory_source = "loads by all SMs, measured";
  return machine;
}

}  // namespace xs
