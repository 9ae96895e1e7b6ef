#pragma once

#include <functional>
#include <optional>
#include <string>

#include "xstage/core/units.hpp"
#include "xstage/mem/world.hpp"
#include "xstage/signal/atomic.hpp"

// Who may read what, and when.
//
// A flag is a counter in the memory of the rank that waits for it. Its word carries the epoch (a layer, say) in the
// upper and the count in the lower 32 bits, and is compared by signed difference, so that both may wrap. There are two
// banks by parity of the epoch: after the closing barrier of an epoch nobody touches its bank until the epoch after
// next, so the owner re-arms it then. docs/protocol.md lists every flag.
//
// Every wait is bounded. On expiry the waiter explains itself (WaitReport), sets every rank's abort word and throws;
// every other wait polls that word and throws too.

namespace xs {

struct SignalOptions {
  Nanos timeout{30e9};                             // of one wait
  std::uint32_t first_epoch = 1;                   // tests start near the wrap
  std::function<std::string(int flag)> flag_name;  // for reports
};

struct WaitReport {
  std::string flag;
  int rank;
  std::int64_t expected;
  std::int64_t seen;
  Nanos since;
  std::string text() const;
};

class Signals {
 public:
  // The region that `num_flags` flags need.
  static RegionId reserve(Layout& layout, int num_flags, int num_ranks);

  // One per rank and run; its threads share it. `region` must be zeroed, all ranks must use the same options.
  Signals(Rank rank, RegionId region, int num_flags, SignalOptions options);

  // publishes: what this thread put() or wrote before, and what it acquired; to: wait() of `peer` that reaches the
  // count; release, system scope. May be called by any thread of the rank.
  void raise(int peer, int flag, std::int64_t amount);

  // acquires: what the raises that make up `count` published; acquire, system scope. Throws Error(timeout) on expiry
  // or when another wait gave up.
  void wait(int flag, std::int64_t count);

  // Ends the epoch on all ranks: returns when every rank has called it; acquires what all of them published. One
  // thread per rank, after the rank's other threads are done with the epoch's flags.
  void close_epoch();

  // Wakes every waiter of every rank with an error. For a rank that cannot go on.
  void abort(const std::string& reason);

 private:
  struct Control;
  Control& control(int rank) const;
  Word& counter(int rank, int flag, std::uint32_t epoch) const;
  Word& arrival(int rank, int source) const;
  void ring(int rank) const;
  void wait_for(Word& word, Word target, const std::function<WaitReport()>& report);
  [[noreturn]] void throw_aborted() const;

  Rank rank_;
  RegionId region_;
  int num_flags_;
  SignalOptions options_;
  std::uint32_t epoch_;
  Word num_closed_ = 0;
};

}  // namespace xs
