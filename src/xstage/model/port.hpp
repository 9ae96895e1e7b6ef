#pragma once

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "xstage/core/units.hpp"

// Burst-Gap: what a store into another memory costs after it issued.
//
// A port is the sender side of a link. A worker's bytes pass two stages. The first is the worker's own: what a bulk
// engine has accepted and not yet read, or stores that wait in the SM (of a slow loop, none). The second, the
// post-issue stage, is shared: at most `capacity` bytes may be outstanding, and they drain at the link's rate. While
// nothing is full a burst costs only its free issue time. When the shared stage is full, bytes enter as fast as the
// link drains, and the storing workers are served unequally: some run ahead, the others stall. What is outstanding
// drains in no particular order, so the last byte of a burst stays longer than a queue would keep it. docs/model.md has
// the derivation and the evidence.

namespace xs {

struct PortParams {
  std::string path;             // store path: "st16", "st4", "bulk8192"
  std::string dst;              // where the bytes go: "nvlink", "host", "hbm"
  Cycles burst_overhead{0};     // before the first store of a burst
  BytesPerCycle free_issue;     // one worker's rate while nothing is full
  BytesPerCycle engine{0};      // from one worker's own stage into the shared one; without such a stage, unused
  Bytes engine_capacity{0};     // of one worker's own stage; 0: there is none
  BytesPerNano drain;           // of the port
  Bytes capacity;               // outstanding in the port
  Bytes worker_capacity{1e18};  // outstanding per worker that shares the port, where that sums to less
  // A burst has drained when what was outstanding at its last byte would have shrunk to e^-disorder, bytes leaving at
  // random; 0: first in, first out.
  double disorder = 0;
  Nanos visible_latency{0};  // from drained to remote visible
  // While the stage is full a worker's part of the drain is n^-group_fairness e^±spread, n = storing workers in its
  // group of SMs (a GPC). 0: SMs are served alike; 1: groups are.
  double group_fairness = 0;
  double spread = 0;
  std::vector<int> groups = {};  // of the i-th SM that a growing grid is placed on; none: all in one

  // What `workers` of them may have outstanding.
  Bytes capacity_of(int workers) const {
    const Bytes own = worker_capacity * workers;
    return capacity * (own / (capacity + own));
  }
};

enum class Completion { issued, source_free, remote_visible };

// Workers that share a port. Every transfer in fit, prediction and simulator is costed here and nowhere else.
//
// Workers fall into a few service classes. All storing workers of a class progress at one common speed, so the state is
// one number per class, a burst ends when its class has progressed by its bytes, and an event costs O(classes +
// log workers).
class PortPool {
 public:
  static constexpr int kClasses = 8;

  // Workers [0, num_workers) share the port. With `in_step`, workers of one class always do the same at the same time:
  // then worker i in [0, kClasses) stands for the i-th part of all, by rising share.
  PortPool(const PortParams& params, GigaHertz sm_clock, int num_workers, bool in_step = false);

  // More workers, numbered behind those there are, that reach the same link by another path, as a copy engine does:
  // they have their own issue and share the drain and the stage. Before the first begin(). Returns the first of them.
  int add_workers(const PortParams& path, int count);

  // A burst reached a completion level: the worker goes on; the source may be written again; the peer sees the bytes.
  struct Event {
    Completion level;
    int worker;
    std::int64_t tag;
    Nanos begin;  // when the worker called begin()
    Nanos at;     // remote_visible is told when the bytes have drained, and lies the port's latency later
  };

  // A burst of bytes > 0 by a worker whose bursts before have issued. `at` must not precede an event already taken;
  // `tag` comes back in the burst's three events.
  void begin(int worker, Bytes bytes, Nanos at, std::int64_t tag = 0);

  // The pool's own next event; infinity when idle. step() takes it and appends what happened to `events`.
  Nanos next_event() const { return next_; }
  void step(std::vector<Event>& events);

  Nanos free_time(Bytes bytes, int worker = 0) const;  // of a burst that never stalls, overhead included
  Bytes outstanding() const { return outstanding_; }
  // Time during which the link drained before `at`, which lies between the last event and the next.
  Nanos busy_until(Nanos at) const { return busy_ + draining(at - now_); }
  // The same until all that is outstanding now has drained.
  Nanos busy() const { return busy_ + outstanding_ / drain_; }

 private:
  struct Burst {
    int worker;
    std::int64_t tag;
    Bytes bytes;
    Nanos begin;
  };
  struct Timed {  // what happens at a time
    Nanos at;
    std::int64_t sequence;  // breaks ties, so that a run is deterministic
    Burst burst;
    bool operator>(const Timed& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
  };
  struct Reached {  // what happens when a class's progress has grown enough
    Bytes progress;
    std::int64_t sequence;
    Burst burst;
    Completion level;
    bool operator>(const Reached& other) const {
      return progress != other.progress ? progress > other.progress : sequence > other.sequence;
    }
  };
  template <class T>
  using Queue = std::priority_queue<T, std::vector<T>, std::greater<>>;
  struct Draining {
    double target;  // drained_ at which it has drained
    std::int64_t sequence;
    Burst burst;
    bool operator>(const Draining& other) const {
      return target != other.target ? target > other.target : sequence > other.sequence;
    }
  };
  struct Path {
    Nanos overhead;
    BytesPerNano free_issue, engine;
    Bytes engine_capacity;
  };
  struct Class {
    std::size_t path;
    double weight;
    double multiplicity;   // workers that one of them stands for
    int storing = 0;       // workers with bytes that have not entered the shared stage
    Bytes progress{0};     // bytes that a worker storing since the start would have brought in
    BytesPerNano rate{0};  // of one storing worker, now
    Queue<Reached> ends = {};
  };
  struct Worker {
    std::size_t service;  // class
    Bytes target{0};      // class progress at which its last byte enters
    bool storing = false;
    int conditions = 0;  // of the current burst's issue that are not met: its own rate, room in its stage
  };

  void add_classes(const PortParams& path, int count, bool in_step);
  const Path& path_of(int worker) const {
    return paths_[classes_[workers_[static_cast<std::size_t>(worker)].service].path];
  }
  Nanos draining(Nanos passed) const;
  double drain_progress(Nanos passed) const;
  void advance(Nanos to);
  void share_rates();
  void start(const Timed& start);
  void end(Class& service, std::vector<Event>& events);
  void meet(const Burst& burst, std::vector<Event>& events);
  Nanos next_end(const Class& service) const;
  Nanos next_fill() const;
  Nanos next_drained() const;
  void find_next();

  GigaHertz sm_clock_;
  BytesPerNano drain_;
  Bytes capacity_;
  double disorder_;
  Nanos visible_latency_;

  Nanos now_{0}, next_, busy_{0};
  Bytes outstanding_{0};
  BytesPerNano inflow_{0};
  bool full_ = false;
  std::int64_t sequence_ = 0;
  std::vector<Path> paths_;
  std::vector<Class> classes_;
  std::vector<std::size_t> filling_order_;  // classes by how soon their own rate limits them while the stage is full
  std::vector<Worker> workers_;
  Queue<Timed> starts_, issue_ends_;
  double drained_ = 0;  // how far the drain has come: in bytes if first in, first out, else in e-foldings
  Queue<Draining> draining_;
};

// `bursts` bursts in a row by each of `workers` workers that start together.
struct BurstPattern {
  int workers = 1;
  Bytes bytes;  // per worker and burst
  Cycles gap;   // from the end of one issue (or of the awaited completion) to the next burst
  int bursts = 32;
  Completion await = Completion::issued;
};

struct BurstPrediction {
  Cycles free;         // issue time without a stall
  Cycles mean_issue;   // over workers and bursts
  Cycles mean_done;    // from the end of the issue to the awaited completion; 0 if none is awaited
  Cycles first_issue;  // mean over workers of the first burst, of the last
  Cycles last_issue;
  Nanos visible_after_last;  // mean from the end of the last issue to remote visible
};

BurstPrediction predict(const PortParams& params, GigaHertz sm_clock, const BurstPattern& pattern);

// Where stalls begin and end: with everything else of `pattern`, the smallest burst whose mean issue exceeds its free
// time by 10 %, and the smallest gap from which it does not. Infinity if there is none up to 1 GiB; 0 if any gap will
// do.
Bytes onset_bytes(const PortParams& params, GigaHertz sm_clock, BurstPattern pattern);
Cycles recovery_gap(const PortParams& params, GigaHertz sm_clock, BurstPattern pattern);

}  // namespace xs
