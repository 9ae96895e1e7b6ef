#include "xstage/signal/signals.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/core/text_lines.hpp"

namespace xs {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReasonBytes = 992;
constexpr std::size_t kTermsBytes = 2048;

// How often a sleeping waiter looks whether its peers are still there.
constexpr auto kLookForPeers = std::chrono::milliseconds(20);

// Sleeps until `bell` differs from `seen`, a ring, or `timeout`; may return for no reason.
void sleep_on(Bell& bell, Bell seen, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative{static_cast<time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  ::syscall(SYS_futex, &bell, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

// A flag, and 0 for none, as one word of what a rank waits for. Arrivals at a meeting stand behind the flags.
Word awaited(int flag) { return static_cast<Word>(flag) + 1; }

// Tells it while a thread waits. One word per rank: whoever waits takes it when it is free, and tries again whenever it
// wakes.
class Told {
 public:
  Told(Word& word, int flag) : word_(word), flag_(flag) {}
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() {
    if (mine_) release_store(word_, 0);
  }
  void tell() { mine_ = mine_ || claim_once(word_, awaited(flag_)); }

 private:
  Word& word_;
  int flag_;
  bool mine_ = false;
};

}  // namespace

// At the head of every rank's region.
struct Signals::Control {
  alignas(128) Bell rings;           // grows with every raise to this rank
  Bell sleepers;                     // threads that sleep on it
  Word awaits;                       // what one of its threads waits for, for the reports of others: awaited(flag)
  alignas(128) Word aborted;         // 0, or 1 + the rank that gave up
  char reason[kReasonBytes];         // written by that rank before
  alignas(128) std::uint32_t epoch;  // of this rank when it called reset()
  char terms[kTermsBytes];           // of this rank when it called agree()
};

std::string WaitReport::text() const {
  return fmt::format("rank {} waited {:.3f} s for {}: expected {}, seen {}", rank, since.value * 1e-9, flag, expected,
                     seen);
}

// Region: Control | FlagWords.
RegionId Signals::reserve(Layout& layout, int num_flags, int num_ranks) {
  return layout.add("signals", sizeof(Control) + FlagWords{num_flags, num_ranks}.size() * sizeof(Word));
}

Signals::Signals(Rank rank, RegionId region, int num_flags, SignalOptions options)
    : rank_(rank),
      region_(region),
      places_{num_flags, rank.num_ranks()},
      options_(std::move(options)),
      faults_(std::make_unique<FaultInjector>(options_.faults, rank.rank())),
      epoch_(options_.first_epoch) {
  // Peers may raise as soon as they run, so the owner must not set a bank: all is armed by adding its start to what is
  // there (zero, or the raises that were faster).
  arm(epoch_, [](Word& word, Word value) { release_add(word, value); });
}

Signals::Control& Signals::control(int rank) const {
  return *reinterpret_cast<Control*>(rank_.mapped(rank, region_).data());
}

Word* Signals::words(int rank) const {
  return reinterpret_cast<Word*>(rank_.mapped(rank, region_).data() + sizeof(Control));
}

Word& Signals::counter(int rank, int flag, std::uint32_t epoch) const {
  return words(rank)[places_.counter(flag, epoch)];
}

Word& Signals::arrival(int rank, int source) const { return words(rank)[places_.arrival(source)]; }

Word& Signals::resetting(int rank, int source) const { return words(rank)[places_.resetting(source)]; }

// All of this rank's flags: the bank of `epoch`, that of the next, and the barriers' words.
void Signals::arm(std::uint32_t epoch, void (*put)(Word& word, Word value)) {
  for (int flag = 0; flag < places_.num_flags; ++flag) {
    for (const auto one : {epoch, epoch + 1}) put(counter(rank_.rank(), flag, one), armed(one));
  }
  for (int source = 0; source < rank_.num_ranks(); ++source) {
    put(arrival(rank_.rank(), source), options_.first_arrival);
  }
  num_barriers_ = 0;
}

void Signals::ring(Control& target) {
  ordered_add(target.rings, 1);
  // Shared futex (not PRIVATE): ranks may be processes.
  if (ordered_load(target.sleepers) > 0)
    ::syscall(SYS_futex, &target.rings, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Signals::raise(int peer, int flag, std::int64_t amount) {
  check(flag >= 0 && flag < places_.num_flags, "raise: flag {} of {} does not exist", flag, places_.num_flags);
  throw_if_aborted();
  step();
  if (faults_->drops_raise()) return;
  // Nothing of the object: a port may deliver when it is gone.
  const auto publish = [&word = counter(peer, flag, epoch_), amount, &target = control(peer)] {
    // publishes: this thread's puts and writes; to: acquire_load in wait_for(); release, system scope. A port's mover
    // has copied the puts itself, and its lock hands over what this thread wrote.
    release_add(word, static_cast<Word>(amount));
    ring(target);
  };
  rank_.then(publish);
}

void Signals::wait(int flag, std::int64_t count) {
  check(flag >= 0 && flag < places_.num_flags, "wait: flag {} of {} does not exist", flag, places_.num_flags);
  step();
  Word& word = counter(rank_.rank(), flag, epoch_);
  wait_for(word, armed(epoch_) + static_cast<Word>(count), flag, options_.timeout, Poison::throws, [&] {
    return WaitReport{name_of(flag), rank_.rank(), count, ahead(relaxed_load(word), armed(epoch_)), Nanos{0}};
  });
}

std::string Signals::name_of(int flag) const {
  if (flag >= places_.num_flags) return fmt::format("arrival of rank {}", flag - places_.num_flags);
  return options_.flag_name ? options_.flag_name(flag) : fmt::format("flag {}", flag);
}

// Who misses a raise is not always the first to give up: the others may wait for that rank.
std::string Signals::what_others_await() const {
  constexpr int kMost = 8;
  std::string text;
  int listed = 0;
  for (int peer = 0; peer < rank_.num_ranks() && listed < kMost; ++peer) {
    const Word awaits = relaxed_load(control(peer).awaits);
    if (peer == rank_.rank() || awaits == 0) continue;
    text +=
        fmt::format("{} rank {} waits for {}", listed++ == 0 ? ";" : ",", peer, name_of(static_cast<int>(awaits) - 1));
  }
  return text;
}

void Signals::wait_for(Word& word, Word target, int flag, Nanos timeout, Poison poison,
                       const std::function<WaitReport()>& report) {
  // acquires: what release_add() and release_store() of the raises published; acquire, system scope.
  const auto reached = [&] { return ahead(acquire_load(word), target) >= 0; };
  Control& own = control(rank_.rank());
  const auto poisoned = [&] { return poison == Poison::throws && relaxed_load(own.aborted) != 0; };
  if (poisoned()) throw_aborted();
  if (reached()) return;
  const auto begin = Clock::now();
  constexpr auto kSpin = std::chrono::microseconds(1);  // many ranks share few cores: a spinner takes a core from the
                                                        // rank it waits for
  while (Clock::now() - begin < kSpin) {
    if (reached()) return;
  }
  const auto give_up = [&](const std::string& why) {
    auto missed = report();
    missed.since = Nanos{static_cast<double>(std::chrono::nanoseconds(Clock::now() - begin).count())};
    const auto text = missed.text() + why + what_others_await();
    abort(text);
    if (poison == Poison::throws) throw_aborted();
    fail(ErrorKind::timeout, "{}", text);  // the abort word still holds what the reset is for
  };
  Told told(own.awaits, flag);
  const auto deadline = begin + std::chrono::nanoseconds(static_cast<std::int64_t>(timeout.value));
  auto next_look = begin + kLookForPeers;
  while (true) {
    told.tell();
    ordered_add(own.sleepers, 1);
    const Bell rings = ordered_load(own.rings);
    const bool done = reached();
    const bool aborted = poisoned();
    const auto left = std::min(deadline, next_look) - Clock::now();
    if (!done && !aborted && left.count() > 0) sleep_on(own.rings, rings, left);
    ordered_add(own.sleepers, static_cast<Bell>(-1));
    if (done) return;
    if (aborted) throw_aborted();
    const auto now = Clock::now();
    if (now >= next_look) {
      next_look = now + kLookForPeers;
      const auto gone = rank_.gone_peer();
      // What it raised before it went counts, and who gave up before it explains more.
      if (gone && !reached() && !poisoned()) give_up(fmt::format("; the process of rank {} is gone", *gone));
    }
    if (now >= deadline && !reached()) give_up("");
  }
}

WaitReport Signals::missing(const char* meeting, int source) const {
  return {fmt::format("{}, {}", meeting, name_of(places_.num_flags + source)), rank_.rank(), 1, 0, Nanos{0}};
}

void Signals::barrier(const char* name) {
  throw_if_aborted();
  rank_.settle();  // raises of all threads, also those that nobody waits for
  for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
    // publishes: all that this rank read and wrote before; to: the wait below on `peer`; release, system scope.
    release_add(arrival(peer, rank_.rank()), 1);
    ring(control(peer));
  }
  ++num_barriers_;
  for (int source = 0; source < rank_.num_ranks(); ++source) {
    wait_for(arrival(rank_.rank(), source), options_.first_arrival + num_barriers_, places_.num_flags + source,
             barrier_timeout(options_.timeout), Poison::throws, [&] { return missing(name, source); });
  }
}

void Signals::agree(std::span<const Term> terms) {
  std::string own;
  for (const auto& term : terms) own += term.name + " " + term.value + "\n";
  check(own.size() < kTermsBytes, "agree: {} bytes of terms, {} fit", own.size(), kTermsBytes);
  own.copy(control(rank_.rank()).terms, own.size());
  control(rank_.rank()).terms[own.size()] = '\0';
  step();
  barrier("agreement");
  std::vector<std::string> all;
  for (int rank = 0; rank < rank_.num_ranks(); ++rank) all.emplace_back(control(rank).terms);
  barrier("agreement");  // nobody overwrites terms that others still read
  std::string differing;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (const auto& [first, other] : differing_lines(all[0], all[rank])) {
      differing += fmt::format(" rank 0 has {}, rank {} has {}.", first, rank, other);
    }
  }
  require(differing.empty(), "the ranks disagree:{}; all ranks need the same shape, dtype and capacity", differing);
}

void Signals::close_epoch() {
  step();
  barrier("closing barrier");
  // The bank of the closed epoch is idle on all ranks until the epoch after next, which cannot begin before this rank
  // has passed the next closing barrier: that barrier's release orders these stores before any raise.
  for (int flag = 0; flag < places_.num_flags; ++flag)
    release_store(counter(rank_.rank(), flag, epoch_), armed(epoch_ + 2));
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
    ring(target);
  }
}

void Signals::throw_if_aborted() const {
  if (relaxed_load(control(rank_.rank()).aborted) != 0) throw_aborted();
}

void Signals::throw_aborted() const {
  Control& own = control(rank_.rank());
  // acquires: reason. The writer is between two instructions when the text is not there yet.
  for (int tries = 0; tries < 10'000 && acquire_load(own.aborted) >> 63 != 0; ++tries) ::usleep(1);
  fail(ErrorKind::timeout, "{}; all ranks stopped", std::string(own.reason));
}

// Every rank has come to `phase` of this reset. Its words only grow and are never reset themselves.
void Signals::meet_for_reset(Word phase) {
  const Word target = 2 * num_resets_ + phase;
  for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
    // publishes: that this rank uses no flags (phase 1), that it has armed its own (phase 2); to: the wait below on
    // `peer`; release, system scope.
    release_store(resetting(peer, rank_.rank()), target);
    ring(control(peer));
  }
  for (int source = 0; source < rank_.num_ranks(); ++source) {
    wait_for(resetting(rank_.rank(), source), target, places_.num_flags + source, barrier_timeout(options_.timeout),
             Poison::ignored, [&] { return missing("reset", source); });
  }
}

void Signals::reset() {
  rank_.settle();  // no raise of before may come after
  control(rank_.rank()).epoch = epoch_;
  meet_for_reset(1);
  // Between the two meetings every rank touches its own words alone.
  for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
    const std::uint32_t other = control(peer).epoch;
    if (static_cast<std::int32_t>(other - epoch_) > 0) epoch_ = other;
  }
  ++epoch_;
  arm(epoch_, [](Word& word, Word value) { release_store(word, value); });
  release_store(control(rank_.rank()).aborted, 0);
  meet_for_reset(2);
  ++num_resets_;
}

}  // namespace xs
