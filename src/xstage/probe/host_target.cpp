#include "xstage/probe/host_target.hpp"

#include <algorithm>
#include <barrier>
#include <memory>

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;

double nanos(Clock::duration time) { return std::chrono::duration<double, std::nano>(time).count(); }

// A burst goes through one piece of memory again and again: large ones should not measure the caches.
constexpr std::size_t kPiece = std::size_t{1} << 18;

void put_burst(HostPort& port, std::span<std::byte> target, std::span<const std::byte> source, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes - at);
    port.put(target.first(size), source.first(size));
  }
}

BurstTimes run_pattern(HostPort& port, const BurstPattern& pattern) {
  std::vector<BurstTimes> sums(static_cast<std::size_t>(pattern.workers));
  std::vector<std::byte> target(kPiece, std::byte{0});
  const std::chrono::nanoseconds gap(static_cast<std::int64_t>(pattern.gap.value));
  std::barrier together(pattern.workers);
  const auto work = [&](BurstTimes& sum) {
    wait_precisely();
    const std::vector<std::byte> source(kPiece, std::byte{1});
    together.arrive_and_wait();
    auto end = Clock::now();
    for (int burst = 0; burst < pattern.bursts; ++burst) {
      if (burst > 0) std::this_thread::sleep_until(end + gap);
      const auto begin = Clock::now();
      if (burst > 0) sum.gap += Cycles{nanos(begin - end)};
      put_burst(port, target, source, static_cast<std::size_t>(pattern.bytes.value));
      end = Clock::now();
      sum.issue += Cycles{nanos(end - begin)};
      if (pattern.await == Completion::remote_visible) {
        port.flush();
        const auto done = Clock::now();
        sum.done += Cycles{nanos(done - end)};
        end = done;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (auto& sum : sums) workers.emplace_back([&] { work(sum); });
  }
  port.flush();  // the next run finds it empty, and nothing goes to `target` any more
  BurstTimes mean{};
  for (const auto& sum : sums) mean.issue += sum.issue, mean.done += sum.done, mean.gap += sum.gap;
  const double count = static_cast<double>(pattern.workers) * pattern.bursts;
  return {mean.issue / count, mean.done / count, mean.gap / std::max(1.0, count - pattern.workers)};
}

}  // namespace

ProbeTarget host_target(const HostPortOptions& options) {
  const auto port = std::make_shared<HostPort>(options);
  // Whatever else runs on the host adds time, to a sleep as to a copy: of a few runs the fastest tells most of the
  // port.
  const auto run = [port](const BurstPattern& pattern) {
    constexpr int kRuns = 3;
    BurstTimes fastest = run_pattern(*port, pattern);
    for (int i = 1; i < kRuns; ++i) {
      const auto times = run_pattern(*port, pattern);
      if (times.issue + times.done + times.gap < fastest.issue + fastest.done + fastest.gap) fastest = times;
    }
    return fastest;
  };
  return {"software port", "put", "memory", GigaHertz{1}, run};
}

}  // namespace xs
