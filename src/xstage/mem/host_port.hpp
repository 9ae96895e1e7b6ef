#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "xstage/core/units.hpp"

// The sender side of a link, in software: a rank's stores leave through a queue of bounded size that drains at a fixed
// rate, so that on a host, too, short bursts are free and sustained ones stall.
//
// The queue keeps a copy of the bytes. What has not drained counts as outstanding. A put hands over one chunk after the
// other and, behind each, waits until no more than the capacity is outstanding of all that entered so far: waiting
// threads take turns. Drained is a matter of the clock: times of draining are absolute, each follows from the one
// before, so a thread that sleeps too long makes no transfer slower as long as the queue does not run empty. A mover
// thread copies bytes to their target when they become remote visible, which is when they have drained and the latency
// has passed. A mover that cannot keep up with the rate holds puts up as well, before the queue holds more than twice
// the capacity and what the latency keeps on its way.

namespace xs {

struct HostPortOptions {
  BytesPerNano drain{1};
  std::size_t capacity = std::size_t{1} << 20;  // bytes that may be outstanding
  Nanos visible_latency{0};                     // from drained to remote visible
  // Fault injection: bytes become visible in an order shuffled by this seed, other puts' and the own ones'. None: first
  // in, first out.
  std::optional<std::uint64_t> reorder_seed = {};
};

// Any number of threads may call any function at the same time. After stop() each of them throws Error(timeout), also
// in threads that wait inside.
class HostPort {
 public:
  explicit HostPort(const HostPortOptions& options);
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;
  ~HostPort();  // stops; flush() first what must arrive

  // Stores `source` into `target`, which is as large and must stay writable until these bytes are visible or the port
  // is gone. On return: issued and source free. Waits at most until what was outstanding and these bytes have drained,
  // provided that the mover keeps up.
  void put(std::span<std::byte> target, std::span<const std::byte> source);

  // Calls `function` when all that this thread put before is remote visible, and not before the latency has passed: a
  // flag travels as its bytes do. Calls of one thread keep their order. What this thread puts later becomes visible
  // later; what other threads put may be visible or not. `function` runs on the mover: it must not throw, wait, or use
  // this port.
  void then(std::function<void()> function);

  // Returns when all that this thread put before is remote visible; the caller may read it then.
  void flush();

  // The same for what any thread put, and for the functions that waited for it. Nobody else should put meanwhile.
  void settle();

  // Drops what is not yet visible, with the functions that wait for it. No function is called after the return, except
  // for one that is running.
  void stop();

 private:
  struct Item {
    std::thread::id sender;
    std::span<std::byte> target;
    std::vector<std::byte> bytes;
    std::function<void()> then;  // instead of bytes
  };

  Nanos now() const { return Nanos{std::chrono::duration<double, std::nano>(Clock::now() - begin_).count()}; }
  void push(Item item);
  void wait_for_mover(std::unique_lock<std::mutex>& lock, std::size_t bytes);
  void wait_for_room(std::unique_lock<std::mutex>& lock);
  void require_running() const;
  Item take();
  void move();

  using Clock = std::chrono::steady_clock;
  const HostPortOptions options_;
  const std::size_t most_held_;
  const Clock::time_point begin_ = Clock::now();

  std::mutex mutex_;                 // of all below
  std::condition_variable room_;     // timed waits for room; signalled by stop() only
  std::condition_variable moved_;    // something became visible
  std::condition_variable arrived_;  // something entered an empty queue
  bool stopped_ = false;
  bool moving_ = false;    // an item that left the queue is not yet done
  Nanos drained_at_{0};    // when all that entered will have drained
  std::size_t held_ = 0;   // bytes in the queue, drained or not
  std::deque<Nanos> due_;  // rising; the i-th taken from the queue becomes visible at the i-th
  std::deque<Item> queue_;
  std::vector<std::vector<std::byte>> spare_;  // buffers to use again
  std::uint64_t num_taken_ = 0;
  std::jthread mover_;
};

// From here on, timed waits of the calling thread overshoot by microseconds; a thread usually has a slack of 50 us.
void wait_precisely();

}  // namespace xs
