#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "xstage/core/units.hpp"
#include "xstage/mem/world.hpp"
#include "xstage/signal/atomic.hpp"
#include "xstage/signal/faults.hpp"
#include "xstage/signal/flag_words.hpp"

// Who may read what, and when.
//
// A flag is a counter in the memory of the rank that waits for it. Its word carries the epoch (a layer, say) in the
// upper and the count in the lower 32 bits, and is compared by signed difference, so that both may wrap. There are two
// banks by parity of the epoch: after the closing barrier of an epoch nobody touches its bank until the epoch after
// next, so the owner re-arms it then. docs/protocol.md lists every flag.
//
// Every wait is bounded. On expiry, or when a peer's process is gone, the waiter explains itself (WaitReport, and what
// the others wait for), sets every rank's abort word and throws; every other wait polls that word and throws the same
// report. From then on the flags are poisoned: every call throws that report, until all ranks reset().

namespace xs {

struct SignalOptions {
  Nanos timeout{30e9};                             // of one wait; where all ranks meet, a quarter more
  std::function<std::string(int flag)> flag_name;  // for reports
  Faults faults = {};
  // Where counters start: tests choose values that soon wrap.
  std::uint32_t first_epoch = 1;
  Word first_arrival = 0;
};

// Where all ranks meet: longer, so that the rank that misses a raise explains itself before those who wait for it.
constexpr Nanos barrier_timeout(Nanos timeout) { return timeout * 1.25; }

struct WaitReport {
  std::string flag;
  int rank;
  std::int64_t expected;
  std::int64_t seen;
  Nanos since;
  std::string text() const;
};

// What all ranks must have alike before they touch each other's memory: a shape, a dtype, a capacity.
struct Term {
  std::string name;
  std::string value;
};

class Signals {
 public:
  // The region that `num_flags` flags need.
  static RegionId reserve(Layout& layout, int num_flags, int num_ranks);

  // One per rank and run; its threads share it. `region` must be zeroed, all ranks must use the same options.
  Signals(Rank rank, RegionId region, int num_flags, SignalOptions options);

  // Returns when every rank has called it with equal terms. Otherwise all of them throw Error(usage) that names the
  // ranks and what differs; nothing is poisoned by that. One thread per rank.
  void agree(std::span<const Term> terms);

  // publishes: what this thread put() or wrote before, and what it acquired; to: wait() of `peer` that reaches the
  // count; release, system scope. May be called by any thread of the rank.
  void raise(int peer, int flag, std::int64_t amount);

  // acquires: what the raises that make up `count` published; acquire, system scope. Throws Error(timeout) on expiry,
  // when a peer is gone or another wait gave up.
  void wait(int flag, std::int64_t count);

  // Ends the epoch on all ranks: returns when every rank has called it; acquires what all of them published. One
  // thread per rank, after the rank's other threads are done with the epoch's flags.
  void close_epoch();

  // Wakes every waiter of every rank with an error. For a rank that cannot go on.
  void abort(const std::string& reason);

  // After an error: returns when every rank has called it; flags, banks and abort words are then as in the beginning,
  // in an epoch that no rank has used. One thread per rank, after its other threads have met the error. Throws
  // Error(timeout) that names the rank which did not come; the ranks must then be started again.
  void reset();

  // A step of the operator's own, for injected faults.
  void step() { faults_->step(); }

 private:
  struct Control;
  Control& control(int rank) const;
  Word* words(int rank) const;
  Word& counter(int rank, int flag, std::uint32_t epoch) const;
  Word& arrival(int rank, int source) const;
  Word& resetting(int rank, int source) const;
  static void ring(Control& target);
  void arm(std::uint32_t epoch, void (*put)(Word& word, Word value));
  void barrier(const char* name);
  void meet_for_reset(Word phase);
  WaitReport missing(const char* meeting, int source) const;
  enum class Poison { throws, ignored };
  // `flag`: of `word`; behind the flags come the arrivals of ranks at a meeting.
  void wait_for(Word& word, Word target, int flag, Nanos timeout, Poison poison,
                const std::function<WaitReport()>& report);
  std::string name_of(int flag) const;
  std::string what_others_await() const;
  void throw_if_aborted() const;
  [[noreturn]] void throw_aborted() const;

  Rank rank_;
  RegionId region_;
  FlagWords places_;
  SignalOptions options_;
  std::unique_ptr<FaultInjector> faults_;
  std::uint32_t epoch_;
  Word num_barriers_ = 0;
  Word num_resets_ = 0;
};

}  // namespace xs
