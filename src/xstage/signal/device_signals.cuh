#pragma once

#if defined(__CUDACC__)
#include <cuda/ptx>
#endif

#include "xstage/signal/device_atomic.cuh"
#include "xstage/signal/signal_table.hpp"

// Signals (signals.hpp) inside a kernel: the same words, epochs and banks, and the same ends.
//
// A thread makes one from its rank's SignalTable when the kernel starts. The epoch is a word of the rank on the device
// that close_epoch() advances, never an argument of a launch, so a captured graph can be replayed.
//
// Giving up. A wait that returns false says: the flags are poisoned, end. Its report and every rank's abort word are
// written; nobody traps and nothing is printed. Every other wait, on other ranks too, returns false when it next looks.
// What the roles of a kernel do then, so that it ends cleanly:
//   · a role leaves its loop. It raises nothing more and hands nothing over;
//   · it lets what it issued come to an end: a role with bulk copies in flight waits until their source is free;
//   · it goes where all threads of the block meet last, and the block returns. No role waits for another one except by
//     handover() or another wait of this class, so all roles get there.
// Then the host reads the report (gpu_signals.hpp). Data that this epoch wrote is worth nothing.
//
// Blocks are one-dimensional.

namespace xs {

class DeviceSignals {
 public:
  // Called by any thread, before any block of the rank has closed an epoch of this launch.
  __device__ explicit DeviceSignals(const SignalTable& table)
      : table_(table),
        words_{table.num_flags, table.rank.num_ranks},
        own_(table.rank.at<std::byte>(table.rank.rank, table.region)),
        base_(device::relaxed_load<cuda::thread_scope_device>(table.local->epoch)) {}

  __device__ int rank() const { return table_.rank.rank; }
  __device__ int num_ranks() const { return table_.rank.num_ranks; }
  __device__ std::uint32_t epoch() const { return static_cast<std::uint32_t>(base_ >> 32); }

  // Called by one thread. Needs: all writers of what it publishes have arrived at a barrier that this thread passed
  // (group completion: one release for all of them); bulk stores have been issued by this thread, which has waited
  // until they are complete, not only until their source is free.
  // publishes: all that; to: wait() of `peer` that reaches the count; release, system scope. On return: issued.
  // Cost: what is in flight of this thread must become remote visible first. 2^31 at most per flag and epoch.
  __device__ void raise(int peer, int flag, Word amount = 1) const {
    device::release_add(words(peer)[words_.counter(flag, epoch())], amount);
  }

  // raise() by a block: called by all of its threads, whose writes it publishes together.
  __device__ void raise_together(int peer, int flag, Word amount = 1) const {
    __syncthreads();
    if (threadIdx.x == 0) raise(peer, flag, amount);
  }

  // Called by one thread; others see what it acquired after a barrier. False: give up.
  // acquires: what the raises that make up `count` published; acquire, system scope. What a tensor load or a bulk copy
  // reads then needs a proxy fence besides (docs/protocol.md, protocol "receive"). Cost: not measured.
  __device__ bool wait(int flag, Word count) const {
    Word& word = own_counter(flag);
    const auto seen = [&] { return ahead(device::acquire_load(word), base_); };
    return wait_for(
        table_.timeout_ns, [&] { return seen() >= static_cast<std::int64_t>(count); },
        [&] { return missing(WaitRecord::What::flag, flag, static_cast<std::int64_t>(count), seen()); });
  }

  // One look: whether wait() would return at once. True: acquires as it does.
  __device__ bool is_there(int flag, Word count) const {
    return ahead(device::acquire_load(own_counter(flag)), base_) >= static_cast<std::int64_t>(count);
  }

  // wait() by a warp, or by a block: called by all of its threads; all of them see what was acquired, and get the same
  // answer.
  __device__ bool wait_warp(int flag, Word count) const {
    const bool there = threadIdx.x % 32 != 0 || wait(flag, count);
    __syncwarp();
    return __all_sync(0xffffffffu, there);
  }
  __device__ bool wait_block(int flag, Word count) const {
    return __syncthreads_and(threadIdx.x != 0 || wait(flag, count));
  }

  // A wait inside a block, of one role for another: `ready` looks once, with what it takes to acquire (a word of shared
  // memory, an mbarrier). Bounded as a barrier is, so that the role which misses a raise speaks first. `index` is for
  // the report. False: give up.
  template <class Ready>
  __device__ bool handover(int index, Ready ready) const {
    for (int look = 0; look < 64; ++look) {  // a neighbour is mostly near, the abort word is not
      if (ready()) return true;
    }
    return end(poll(table_.barrier_timeout_ns, ready, true), missing(WaitRecord::What::handover, index, 1, 0));
  }

  // Ends the epoch on all ranks. Called by all threads of all `num_blocks` blocks of the rank in this grid, each when
  // it is done with the epoch's flags. Returns when every rank has called it, acquires what all of them published; the
  // next epoch has begun. False: give up.
  __device__ bool close_epoch(int num_blocks) {
    LocalWords& local = *table_.local;
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
      // publishes: what this block read and wrote; to: the last block of the rank, whose arrivals publish it further.
      // Scope of the GPU, for a rank is one GPU.
      last = device::arrive<cuda::thread_scope_device>(local.done) + 1 == static_cast<Word>(num_blocks);
    }
    last = __syncthreads_or(last);
    bool closed = false;
    if (last) {
      closed = meet();
      if (closed) begin_epoch();
    } else {
      // acquires: what the last block acquired from all ranks, and the counters that it armed; GPU scope as above.
      const auto begun = [&] {
        return ahead(device::acquire_load<cuda::thread_scope_device>(local.epoch), base_ + armed(1)) >= 0;
      };
      const auto record = [&] {
        const auto done = static_cast<std::int64_t>(device::relaxed_load<cuda::thread_scope_device>(local.done));
        return missing(WaitRecord::What::blocks, 0, num_blocks, done);
      };
      closed = __syncthreads_and(threadIdx.x != 0 || wait_for(table_.barrier_timeout_ns, begun, record));
    }
    if (closed) base_ += armed(1);
    return closed;
  }

  // For a rank of this GPU that does not run: its arrival at the end of the epoch that `peer` runs next.
  __device__ void arrive_without_running(int peer) const {
    device::release_add(words(peer)[words_.arrival(rank())], 1);  // publishes nothing
  }

  // For signal_kernels.cu: the first arming, and the collective reset. Called by all threads of one block per rank,
  // when no other kernel uses the signals of the rank.
  __device__ void arm_first(std::uint32_t epoch, Word arrival) {
    base_ = armed(epoch);
    // Peers may raise as soon as they run, so the owner must not set a bank: it adds the start to what is there.
    arm(arrival, [](Word& word, Word value) { device::release_add(word, value); });
  }
  __device__ bool reset(Word arrival) {
    if (threadIdx.x == 0) device::relaxed_store(own_control().epoch, base_);
    if (!meet_for_reset(1)) return false;
    // Between the two meetings every rank writes its own words alone.
    Word latest = base_;
    for (int peer = 0; peer < num_ranks(); ++peer) {
      const Word other = device::relaxed_load(control(peer).epoch);
      if (ahead(other, latest) > 0) latest = other;
    }
    base_ = latest + armed(1);
    arm(arrival, [](Word& word, Word value) { device::relaxed_store(word, value); });
    if (threadIdx.x == 0) device::relaxed_store(own_control().aborted, 0);
    if (!meet_for_reset(2)) return false;
    if (threadIdx.x == 0) ++table_.local->num_resets;
    return true;
  }

 private:
  enum class Outcome { reached, aborted, expired };
  struct Waited {
    Outcome outcome;
    std::uint64_t ns;
  };

  __device__ DeviceControl& control(int peer) const { return *table_.rank.at<DeviceControl>(peer, table_.region); }
  __device__ DeviceControl& own_control() const { return *reinterpret_cast<DeviceControl*>(own_); }
  __device__ Word* words(int peer) const { return table_.rank.at<Word>(peer, table_.region + sizeof(DeviceControl)); }
  __device__ Word* own_words() const { return reinterpret_cast<Word*>(own_ + sizeof(DeviceControl)); }
  __device__ Word& own_counter(int flag) const { return own_words()[words_.counter(flag, epoch())]; }
  __device__ bool is_aborted() const { return device::relaxed_load(own_control().aborted) != 0; }
  __device__ WaitRecord missing(WaitRecord::What what, int index, std::int64_t expected, std::int64_t seen) const {
    return {what, index, rank(), expected, seen, 0};
  }

  // Looks until `ready`, until this rank's abort word is set if that is to be heeded, or for `timeout_ns`. Poison wins,
  // whatever the flag says.
  template <class Ready>
  __device__ Waited poll(std::uint64_t timeout_ns, Ready ready, bool heed_abort) const {
    std::uint64_t begin = 0;
    while (true) {
      const bool aborted = heed_abort && is_aborted();
      const bool reached = ready();  // both loads are on their way together
      if (reached && !aborted) return {Outcome::reached, 0};
      const auto now = cuda::ptx::get_sreg_globaltimer();
      if (begin == 0) begin = now;
      const auto ns = now - begin;
      if (aborted) return {Outcome::aborted, ns};
      if (ns >= timeout_ns) return {ready() ? Outcome::reached : Outcome::expired, ns};
    }
  }

  __device__ bool end(Waited waited, WaitRecord record) const {
    if (waited.outcome == Outcome::reached) return true;
    record.waited_ns = waited.ns;
    if (waited.outcome == Outcome::expired) give_up(record);
    return false;
  }

  template <class Ready, class Record>
  __device__ bool wait_for(std::uint64_t timeout_ns, Ready ready, Record record) const {
    const auto waited = poll(timeout_ns, ready, true);
    return waited.outcome == Outcome::reached || end(waited, record());
  }

  // First come, first served: kWriting reserves the record, the final value publishes it.
  __device__ void give_up(const WaitRecord& record) const {
#if defined(__CUDACC__)
#pragma unroll 1  // inlined at every wait, and never fast
#endif
    for (int peer = 0; peer < num_ranks(); ++peer) {
      DeviceControl& target = control(peer);
      if (!device::claim_once(target.aborted, DeviceControl::kWriting)) continue;
      target.record = record;
      // publishes: record; to: the host when the kernel has ended; release, system scope. Waiters read the word alone.
      device::release_store(target.aborted, static_cast<Word>(rank()) + 1);
    }
  }

  // All ranks arrive. Called by all threads of one block of the rank; one thread per peer, so that peers cost no more
  // than one.
  __device__ bool meet() const {
    for (int peer = static_cast<int>(threadIdx.x); peer < num_ranks(); peer += static_cast<int>(blockDim.x)) {
      // publishes: all that this rank read and wrote before; to: the wait below on `peer`; release, system scope.
      device::release_add(words(peer)[words_.arrival(rank())], 1);
    }
    const Word target = table_.local->arrival + 1;
    bool all = true;
    for (int source = static_cast<int>(threadIdx.x); source < num_ranks() && all;
         source += static_cast<int>(blockDim.x)) {
      Word& word = own_words()[words_.arrival(source)];
      all = wait_for(
          table_.barrier_timeout_ns, [&] { return ahead(device::acquire_load(word), target) >= 0; },
          [&] { return missing(WaitRecord::What::arrival, source, 1, 0); });
    }
    return __syncthreads_and(all);
  }

  // Called by all threads of the block that met. The bank of the closed epoch is idle on all ranks until the epoch
  // after next, which cannot begin before this rank has arrived at the next closing barrier: that arrival orders these
  // stores before any raise.
  __device__ void begin_epoch() {
    for (int flag = static_cast<int>(threadIdx.x); flag < table_.num_flags; flag += static_cast<int>(blockDim.x)) {
      device::relaxed_store(own_counter(flag), base_ + armed(2));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      LocalWords& local = *table_.local;
      ++local.arrival;  // of one block at a time, in the order of the epochs
      device::relaxed_store<cuda::thread_scope_device>(local.done, 0);
      device::release_store<cuda::thread_scope_device>(local.epoch, base_ + armed(1));  // to: the other blocks
    }
  }

  // All flags of this rank: the bank of this epoch, that of the next, the barriers' words.
  template <class Put>
  __device__ void arm(Word arrival, Put put) const {
    __syncthreads();  // all threads of the block have read what this rewrites
    for (int flag = static_cast<int>(threadIdx.x); flag < table_.num_flags; flag += static_cast<int>(blockDim.x)) {
      for (const Word base : {base_, base_ + armed(1)}) {
        put(own_words()[words_.counter(flag, static_cast<std::uint32_t>(base >> 32))], base);
      }
    }
    for (int source = static_cast<int>(threadIdx.x); source < num_ranks(); source += static_cast<int>(blockDim.x)) {
      put(own_words()[words_.arrival(source)], arrival);
    }
    if (threadIdx.x == 0) {
      LocalWords& local = *table_.local;
      local.epoch = base_;
      local.done = 0;
      local.arrival = arrival;
    }
  }

  // Every rank has come to `phase` of this reset. These words only grow and are never reset themselves.
  __device__ bool meet_for_reset(Word phase) const {
    __syncthreads();
    LocalWords& local = *table_.local;
    const Word target = 2 * local.num_resets + phase;
    for (int peer = static_cast<int>(threadIdx.x); peer < num_ranks(); peer += static_cast<int>(blockDim.x)) {
      // publishes: that this rank uses no flags (phase 1), that it has armed its own (phase 2); to: the wait below on
      // `peer`; release, system scope.
      device::release_store(words(peer)[words_.resetting(rank())], target);
    }
    bool all = true;
    for (int source = static_cast<int>(threadIdx.x); source < num_ranks(); source += static_cast<int>(blockDim.x)) {
      Word& word = own_words()[words_.resetting(source)];
      // The abort word still holds what the reset is for.
      const auto waited = poll(
          table_.barrier_timeout_ns, [&] { return ahead(device::acquire_load(word), target) >= 0; }, false);
      if (waited.outcome == Outcome::reached) continue;
      all = false;
      local.missed = missing(WaitRecord::What::reset, source, 1, 0);
      local.missed.waited_ns = waited.ns;
    }
    return __syncthreads_and(all);
  }

  SignalTable table_;
  FlagWords words_;
  std::byte* own_;  // where this rank's signals region begins
  Word base_;       // armed(epoch)
};

}  // namespace xs
