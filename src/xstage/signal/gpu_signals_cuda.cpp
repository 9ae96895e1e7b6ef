#include <algorithm>
#include <cstring>

#include "xstage/core/error.hpp"
#include "xstage/signal/gpu_signals.hpp"
#include "xstage/signal/signals.hpp"

namespace xs {
namespace {

std::size_t pointers(int count) { return static_cast<std::size_t>(count) * sizeof(std::byte*); }

}  // namespace

GpuSignals::GpuSignals(int device, int num_ranks, int num_flags, int num_blocks, GpuSignalOptions options)
    : num_ranks_(num_ranks),
      num_flags_(num_flags),
      num_blocks_(num_blocks),
      options_(std::move(options)),
      bases_(device, GpuPlace::own, pointers(std::max(1, num_ranks))) {
  require(num_ranks >= 1 && num_flags >= 0 && num_blocks >= 1,
          "signals of {} ranks with {} flags and {} blocks each: expected at least one rank and one block", num_ranks,
          num_flags, num_blocks);
  std::vector<std::byte*> bases;
  for (int rank = 0; rank < num_ranks; ++rank) {
    regions_.emplace_back(device, GpuPlace::own, DeviceSignals::bytes(num_flags, num_ranks));
    bases.push_back(regions_.back().data());
  }
  bases_.write(0, std::as_bytes(std::span(bases)));
  arm(options_.first_epoch);
}

void GpuSignals::arm(std::uint32_t epoch) {
  std::vector<std::byte> bytes(DeviceSignals::bytes(num_flags_, num_ranks_));
  std::vector<std::byte*> region{bytes.data()};
  const DeviceSignals image{region.data(), 0, num_ranks_, num_flags_, num_blocks_, 0, 0};
  image.control(0).epoch = epoch;
  for (int flag = 0; flag < num_flags_; ++flag) {
    for (const auto one : {epoch, epoch + 1}) image.counter(0, flag, one) = armed(one);
  }
  for (int source = 0; source < num_ranks_; ++source) image.arrival(0, source) = options_.first_arrival;
  for (const auto& own : regions_) own.write(0, bytes);
}

DeviceSignals GpuSignals::of(int rank) const {
  if (!poison_.empty()) fail(ErrorKind::timeout, "{}", poison_);
  require(rank >= 0 && rank < num_ranks_, "signals of rank {}: there are {} ranks", rank, num_ranks_);
  return {reinterpret_cast<std::byte* const*>(bases_.data()),
          rank,
          num_ranks_,
          num_flags_,
          num_blocks_,
          static_cast<std::int64_t>(options_.timeout.value),
          options_.first_arrival};
}

DeviceControl GpuSignals::read_control(int rank) const {
  DeviceControl control{};
  regions_[static_cast<std::size_t>(rank)].read(0, std::as_writable_bytes(std::span(&control, 1)));
  return control;
}

std::string GpuSignals::name_of(const DeviceControl& report) const {
  const auto flag = static_cast<int>(report.flag);
  if (flag == num_flags_ + num_ranks_) return "closing barrier, blocks of the rank itself";
  return (flag < num_flags_ ? "" : "closing barrier, ") + name_of_flag(options_.flag_name, num_flags_, flag);
}

void GpuSignals::check() {
  if (poison_.empty()) {
    for (int rank = 0; rank < num_ranks_ && poison_.empty(); ++rank) {
      const Word aborted = read_control(rank).aborted;
      if (aborted == 0) continue;
      const int reporter = static_cast<int>(aborted - 1);
      const auto report = read_control(reporter);
      poison_ = WaitReport{name_of(report), reporter, report.expected, report.seen,
                           Nanos{static_cast<double>(report.waited_ns)}}
                    .text() +
                "; all ranks stopped";
    }
  }
  if (!poison_.empty()) fail(ErrorKind::timeout, "{}", poison_);
}

std::uint32_t GpuSignals::epoch(int rank) const { return static_cast<std::uint32_t>(read_control(rank).epoch); }

void GpuSignals::reset() {
  std::uint32_t latest = epoch(0);
  for (int rank = 1; rank < num_ranks_; ++rank) {
    const std::uint32_t other = epoch(rank);
    if (static_cast<std::int32_t>(other - latest) > 0) latest = other;
  }
  arm(latest + 1);
  poison_.clear();
}

}  // namespace xs
