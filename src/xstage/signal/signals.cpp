#include "xstage/signal/signals.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "xstage/core/error.hpp"

namespace xs {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReasonBytes = 480;

// How far `word` is past `target`; negative: not reached. Signed, so that a wrap of the epoch does not matter.
std::int64_t ahead(Word word, Word target) { return static_cast<std::int64_t>(word - target); }

Word armed(std::uint32_t epoch) { return Word{epoch} << 32; }

// Sleeps until `bell` differs from `seen`, a ring, or `timeout`; may return for no reason.
void sleep_on(Bell& bell, Bell seen, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative{static_cast<time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  ::syscall(SYS_futex, &bell, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

}  // namespace

// At the head of every rank's region.
struct Signals::Control {
  alignas(128) Bell rings;    // grows with every raise to this rank
  Bell sleepers;              // threads that sleep on it
  alignas(128) Word aborted;  // 0, or 1 + the rank that gave up
  char reason[kReasonBytes];  // written by that rank before
};

std::string WaitReport::text() const {
  return fmt::format("rank {} waited {:.3f} s for {}: expected {}, seen {}", rank, since.value * 1e-9, flag, expected,
                     seen);
}

// Region: Control | two banks of counters | arrivals at the closing barrier, one word per source rank.
RegionId Signals::reserve(Layout& layout, int num_flags, int num_ranks) {
  const auto words = 2 * static_cast<std::size_t>(num_flags) + static_cast<std::size_t>(num_ranks);
  return layout.add("signals", sizeof(Control) + words * sizeof(Word));
}

Signals::Signals(Rank rank, RegionId region, int num_flags, SignalOptions options)
    : rank_(rank), region_(region), num_flags_(num_flags), options_(std::move(options)), epoch_(options_.first_epoch) {
  // Peers may raise as soon as they run, so the owner must not reset a bank: both are armed by adding the base of the
  // epoch to what is there (zero, or the raises that were faster).
  for (int flag = 0; flag < num_flags_; ++flag) {
    for (const auto epoch : {epoch_, epoch_ + 1}) release_add(counter(rank_.rank(), flag, epoch), armed(epoch));
  }
}

Signals::Control& Signals::control(int rank) const {
  return *reinterpret_cast<Control*>(rank_.mapped(rank, region_).data());
}

Word& Signals::counter(int rank, int flag, std::uint32_t epoch) const {
  auto* words = reinterpret_cast<Word*>(rank_.mapped(rank, region_).data() + sizeof(Control));
  return words[(epoch % 2) * static_cast<std::size_t>(num_flags_) + static_cast<std::size_t>(flag)];
}

Word& Signals::arrival(int rank, int source) const {
  auto* words = reinterpret_cast<Word*>(rank_.mapped(rank, region_).data() + sizeof(Control));
  return words[2 * static_cast<std::size_t>(num_flags_) + static_cast<std::size_t>(source)];
}

void Signals::ring(int rank) const {
  Control& target = control(rank);
  ordered_add(target.rings, 1);
  // Shared futex (not PRIVATE): ranks may be processes.
  if (ordered_load(target.sleepers) > 0)
    ::syscall(SYS_futex, &target.rings, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Signals::raise(int peer, int flag, std::int64_t amount) {
  check(flag >= 0 && flag < num_flags_, "raise: flag {} of {} does not exist", flag, num_flags_);
  // publishes: this thread's puts and writes; to: acquire_load in wait_for(); release, system scope.
  release_add(counter(peer, flag, epoch_), static_cast<Word>(amount));
  ring(peer);
}

void Signals::wait(int flag, std::int64_t count) {
  check(flag >= 0 && flag < num_flags_, "wait: flag {} of {} does not exist", flag, num_flags_);
  Word& word = counter(rank_.rank(), flag, epoch_);
  wait_for(word, armed(epoch_) + static_cast<Word>(count), [&] {
    const auto name = options_.flag_name ? options_.flag_name(flag) : fmt::format("flag {}", flag);
    return WaitReport{name, rank_.rank(), count, ahead(relaxed_load(word), armed(epoch_)), Nanos{0}};
  });
}

void Signals::wait_for(Word& word, Word target, const std::function<WaitReport()>& report) {
  // acquires: what release_add() and release_store() of the raises published; acquire, system scope.
  const auto reached = [&] { return ahead(acquire_load(word), target) >= 0; };
  if (reached()) return;
  Control& own = control(rank_.rank());
  const auto begin = Clock::now();
  constexpr auto kSpin = std::chrono::microseconds(1);  // many ranks share few cores: a spinner takes a core from the
                                                        // rank it waits for
  while (Clock::now() - begin < kSpin) {
    if (reached()) return;
  }
  const auto deadline = begin + std::chrono::nanoseconds(static_cast<std::int64_t>(options_.timeout.value));
  while (true) {
    ordered_add(own.sleepers, 1);
    const Bell rings = ordered_load(own.rings);
    const bool done = reached();
    const bool aborted = acquire_load(own.aborted) != 0;
    const auto left = deadline - Clock::now();
    if (!done && !aborted && left.count() > 0) sleep_on(own.rings, rings, left);
    ordered_add(own.sleepers, static_cast<Bell>(-1));
    if (done) return;
    if (aborted) throw_aborted();
    if (left.count() <= 0) {
      auto expired = report();
      expired.since = Nanos{static_cast<double>(std::chrono::nanoseconds(Clock::now() - begin).count())};
      abort(expired.text());
      throw_aborted();
    }
  }
}

void Signals::close_epoch() {
  for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
    // publishes: all that this rank read and wrote in the epoch; to: the wait below on `peer`; release, system scope.
    release_add(arrival(peer, rank_.rank()), 1);
    ring(peer);
  }
  for (int source = 0; source < rank_.num_ranks(); ++source) {
    Word& word = arrival(rank_.rank(), source);
    wait_for(word, num_closed_ + 1, [&] {
      return WaitReport{fmt::format("closing barrier, arrival of rank {}", source), rank_.rank(), 1, 0, Nanos{0}};
    });
  }
  ++num_closed_;
  // The bank of the closed epoch is idle on all ranks until the epoch after next, which cannot begin before this rank
  // has passed the next closing barrier: that barrier's release orders these stores before any raise.
  for (int flag = 0; flag < num_flags_; ++flag) release_store(counter(rank_.rank(), flag, epoch_), armed(epoch_ + 2));
  ++epoch_;
}

void Signals::abort(const std::string& reason) {
  for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
    Control& target = control(peer);
    // First come, first served: 2^63 reserves the text, the final value publishes it.
    constexpr Word kWriting = Word{1} << 63;
    if (claim_once(target.aborted, kWriting)) {
      std::strncpy(target.reason, reason.c_str(), kReasonBytes - 1);
      // publishes: reason; to: throw_aborted(); release, system scope.
      release_store(target.aborted, static_cast<Word>(rank_.rank()) + 1);
    }
    ring(peer);
  }
}

void Signals::throw_aborted() const {
  Control& own = control(rank_.rank());
  // acquires: reason. The writer is between two instructions when the text is not there yet.
  for (int tries = 0; tries < 10'000 && acquire_load(own.aborted) >> 63 != 0; ++tries) ::usleep(1);
  fail(ErrorKind::timeout, "{}; all ranks stopped", std::string(own.reason));
}

}  // namespace xs
