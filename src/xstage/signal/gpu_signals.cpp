#include "xstage/signal/gpu_signals.hpp"

#include <unistd.h>

#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/signal/signal_kernels.hpp"

namespace xs {
namespace {

std::size_t tables_offset(const GpuWorld& world) {
  return static_cast<std::size_t>(world.num_own_ranks()) * sizeof(LocalWords);
}

std::size_t all_bytes(const GpuWorld& world) {
  return tables_offset(world) + static_cast<std::size_t>(world.num_own_ranks()) * sizeof(SignalTable);
}

}  // namespace

WaitReport explain(const WaitRecord& record, const SignalOptions& options) {
  const auto awaited = [&]() -> std::string {
    switch (record.what) {
      case WaitRecord::What::flag:
        return options.flag_name ? options.flag_name(record.index) : fmt::format("flag {}", record.index);
      case WaitRecord::What::arrival:
        return fmt::format("closing barrier, arrival of rank {}", record.index);
      case WaitRecord::What::blocks:
        return "closing barrier, blocks of its own";
      case WaitRecord::What::handover:
        return fmt::format("handover {} inside a block", record.index);
      case WaitRecord::What::reset:
        return fmt::format("reset, arrival of rank {}", record.index);
    }
    fail(ErrorKind::internal, "a wait record of kind {}", static_cast<int>(record.what));
  };
  return {awaited(), record.rank, record.expected, record.seen, Nanos{static_cast<double>(record.waited_ns)}};
}

RegionId GpuSignals::reserve(Layout& layout, int num_flags, int num_ranks) {
  return layout.add("signals", sizeof(DeviceControl) + FlagWords{num_flags, num_ranks}.size() * sizeof(Word));
}

GpuSignals::GpuSignals(const GpuWorld& world, RegionId region, int num_flags, SignalOptions options)
    : world_(world),
      region_(region),
      options_(std::move(options)),
      memory_(world.device(), GpuPlace::own, all_bytes(world)) {
  world.require_atomics();
  const auto timeout = [](Nanos time) { return static_cast<std::uint64_t>(time.value); };
  std::vector<SignalTable> tables;
  for (int i = 0; i < world.num_own_ranks(); ++i) {
    auto* local = reinterpret_cast<LocalWords*>(memory_.data()) + i;
    tables.push_back({world.rank(world.first_rank() + i), world.layout().offset(region), num_flags,
                      timeout(options_.timeout), timeout(barrier_timeout(options_.timeout)), local});
  }
  memory_.write(tables_offset(world), std::as_bytes(std::span(tables)));
  arm_signals(world.device(), this->tables(), world.num_own_ranks(), options_.first_epoch, options_.first_arrival);
}

const SignalTable* GpuSignals::tables() const {
  return reinterpret_cast<const SignalTable*>(memory_.data() + tables_offset(world_));
}

LocalWords GpuSignals::local(int rank) const {
  const int own = rank - world_.first_rank();
  require(own >= 0 && own < world_.num_own_ranks(), "rank {} does not run here", rank);
  LocalWords local;
  memory_.read(static_cast<std::size_t>(own) * sizeof(local), std::as_writable_bytes(std::span(&local, 1)));
  return local;
}

std::uint32_t GpuSignals::epoch(int rank) const { return static_cast<std::uint32_t>(local(rank).epoch >> 32); }

void GpuSignals::throw_if_given_up() const {
  for (int i = 0; i < world_.num_own_ranks(); ++i) {
    const int rank = world_.first_rank() + i;
    DeviceControl control;
    const auto read = [&] { world_.read(rank, region_, 0, std::as_writable_bytes(std::span(&control, 1))); };
    read();
    // A rank of another process may be between two instructions when its record is not there yet.
    for (int tries = 0; tries < 10'000 && control.aborted == DeviceControl::kWriting; ++tries) ::usleep(1), read();
    if (control.aborted == 0) continue;
    check(control.aborted != DeviceControl::kWriting, "rank {}: who gave up left no record", rank);
    fail(ErrorKind::timeout, "{}; all ranks stopped", explain(control.record, options_).text());
  }
}

void GpuSignals::reset() {
  reset_signals(world_.device(), tables(), world_.num_own_ranks(), options_.first_arrival);
  for (int i = 0; i < world_.num_own_ranks(); ++i) {
    const auto after = local(world_.first_rank() + i);
    if (after.missed_reset != 0) fail(ErrorKind::timeout, "{}", explain(after.missed, options_).text());
  }
}

}  // namespace xs
