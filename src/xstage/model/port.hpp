#pragma once

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "xstage/core/units.hpp"

// Burst-Gap: what a store into another memory costs after it issued.
//
// A port is the sender side of a link. Stores enter its post-issue stage at the workers' free rate; at most
// `capacity` bytes may be outstanding; they drain at the link's rate. A burst that fits costs only its free issue
// time; when the stage is full, stores enter as fast as the link drains and the issuing worker stalls.
// docs/model.md has the derivation.

namespace xs {

struct PortParams {
  std::string path;          // store path: "st16", "st4", "bulk8192"
  std::string dst;           // where the bytes go: "nvlink", "host", "hbm"
  int workers = 1;           // SMs that stored when this was fitted
  Cycles burst_overhead{0};  // before the first store of a burst
  BytesPerCycle free_issue;  // one worker's rate while nothing is full
  BytesPerNano drain;        // the whole port
  Bytes capacity;            // the whole port
  Nanos visible_latency{0};  // from drained to remote visible

  // The port as one of `count` workers sees it while all of them move in step.
  PortParams share(int count) const;
};

// Workers that share a port. Every transfer in fit, prediction and simulator is costed here and nowhere else.
//
// Plain form: one pool of outstanding bytes, equal service for every worker that is storing. All storing workers
// then progress at one common speed, so a burst ends when the common progress has grown by its bytes, and an event
// costs O(log workers). The queue is first in, first out: a burst is drained when all bytes that were outstanding
// at its last store are.
class PortPool {
 public:
  PortPool(const PortParams& params, GigaHertz sm_clock);

  struct Issued {
    int worker;
    Nanos begin;           // when the worker called
    Nanos end;             // source of the next instruction: the worker goes on
    Nanos remote_visible;  // completion level of the last byte
  };

  // A burst of bytes > 0 by a worker that has none in flight. `at` must not precede an event already taken.
  void begin(int worker, Bytes bytes, Nanos at);

  // The pool's own next event; infinity when idle. step() takes it and appends what ended to `ended`.
  Nanos next_event() const;
  void step(std::vector<Issued>& ended);

  Nanos free_time(Bytes bytes) const;  // of a burst that never stalls, overhead included
  Bytes outstanding() const { return outstanding_; }
  // Time during which the link drained before `at`, which lies between the last event and the next.
  Nanos busy_until(Nanos at) const { return busy_ + draining(at - now_); }
  // The same until all that is outstanding now has drained.
  Nanos busy() const { return busy_ + outstanding_ / drain_; }

 private:
  struct Start {
    Nanos at;
    std::int64_t sequence;  // breaks ties, so that a run is deterministic
    int worker;
    Bytes bytes;
    Nanos called;
    bool operator>(const Start& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
  };
  struct Flight {
    Bytes until;  // common progress at which this burst ends
    std::int64_t sequence;
    int worker;
    Nanos called;
    bool operator>(const Flight& other) const {
      return until != other.until ? until > other.until : sequence > other.sequence;
    }
  };

  BytesPerNano inflow() const { return static_cast<double>(flights_.size()) * free_issue_; }
  Nanos draining(Nanos passed) const;
  void advance(Nanos to);
  Nanos next_end() const;

  BytesPerNano free_issue_;
  BytesPerNano drain_;
  Bytes capacity_;
  Nanos overhead_;
  Nanos visible_latency_;

  Nanos now_{0};
  Nanos busy_{0};
  Bytes outstanding_{0};
  Bytes progress_{0};  // bytes that a worker storing since the start would have issued
  std::int64_t sequence_ = 0;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flights_;
};

enum class Completion { issued, source_free, remote_visible };

// `bursts` bursts in a row by each of `workers` workers that start together.
struct BurstPattern {
  int workers = 1;
  Bytes bytes;  // per worker and burst
  Cycles gap;   // from the end of one issue (or of the awaited completion) to the next burst
  int bursts = 32;
  Completion await = Completion::issued;
};

struct BurstPrediction {
  Cycles free;        // issue time without a stall
  Cycles mean_issue;  // over bursts
  Cycles first_issue;
  Cycles last_issue;
  Nanos visible_after_last;  // from the end of the last issue to remote visible
};

BurstPrediction predict(const PortParams& params, GigaHertz sm_clock, const BurstPattern& pattern);

}  // namespace xs
