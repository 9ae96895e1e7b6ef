#include "xstage/sim/simulate.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

constexpr Nanos kNever{std::numeric_limits<double>::infinity()};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const SimMachine& machine, const SimOptions& options)
      : schedule_(schedule), machine_(machine), options_(options), num_flags_(schedule.num_flags()) {
    timeline_.num_ranks = static_cast<int>(schedule.ranks.size());
    timeline_.workers_per_rank = options.workers_per_rank;
    flags_.resize(schedule.ranks.size() * static_cast<std::size_t>(num_flags_));
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      ranks_.emplace_back(PortPool(machine.port, machine.sm_clock, options.workers_per_rank),
                          options.workers_per_rank);
    }
  }

  Timeline run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t worker = 0; worker < ranks_[rank].workers.size(); ++worker) claim(rank, worker);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      switch (event.kind) {
        case EventKind::computed:
          store(event.rank, event.worker);
          break;
        case EventKind::port:
          step_port(event);
          break;
        case EventKind::stored:
          publish_locally(event.rank, event.worker);
          break;
        case EventKind::visible:
          raise(event.rank, event.claim, Target::peers);
          break;
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      check(ranks_[rank].num_done == schedule_.ranks[rank].tasks.size(),
            "simulate: rank {} stopped after {} of {} tasks; the schedule was not checked", rank, ranks_[rank].num_done,
            schedule_.ranks[rank].tasks.size());
      timeline_.link_busy.push_back(ranks_[rank].port.busy());
      timeline_.link_hidden.push_back(ranks_[rank].hidden / options_.workers_per_rank);
    }
    return std::move(timeline_);
  }

 private:
  struct Worker {
    std::size_t claim = 0;
    std::size_t next_static = 0;
    Nanos since{0};       // end of its last span
    Nanos store_free{0};  // when the current store would end without a stall
  };
  struct RankState {
    RankState(PortPool pool, int num_workers) : port(std::move(pool)), workers(static_cast<std::size_t>(num_workers)) {
      for (std::size_t i = 0; i < workers.size(); ++i) workers[i].next_static = i;
    }
    PortPool port;
    std::int64_t port_version = 0;  // of the port's next event; older ones in the queue are stale
    std::size_t next_claim = 0;
    std::size_t num_done = 0;
    int computing = 0;   // workers
    Nanos busy_seen{0};  // the port's busy time when that number last changed
    Nanos hidden{0};     // busy time, once for each worker that computed meanwhile
    std::vector<Worker> workers;
  };
  struct Flag {
    std::int64_t value = 0;
    std::vector<std::size_t> waiters;  // workers of the rank
  };
  enum class EventKind { computed, stored, port, visible };
  enum class Target { own_rank, peers };
  struct Event {
    Nanos at;
    std::int64_t sequence;
    EventKind kind;
    std::size_t rank;
    std::size_t worker;        // computed, stored
    std::size_t claim;         // visible
    std::int64_t version = 0;  // port
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
  };

  Flag& flag(std::size_t rank, std::int32_t index) {
    return flags_[rank * static_cast<std::size_t>(num_flags_) + static_cast<std::size_t>(index)];
  }

  void push(Event event) {
    event.sequence = sequence_++;
    events_.push(event);
  }

  void change_computing(std::size_t rank, int by) {
    RankState& state = ranks_[rank];
    const Nanos busy = state.port.busy_until(now_);
    state.hidden += (busy - state.busy_seen) * state.computing;
    state.busy_seen = busy;
    state.computing += by;
  }

  // Ends the worker's current span at `end`; spans of no length are not recorded.
  void span(std::size_t rank, std::size_t index, SpanKind kind, Nanos end) {
    Worker& worker = ranks_[rank].workers[index];
    if (end <= worker.since) return;
    const Task& task = schedule_.ranks[rank].tasks[worker.claim];
    timeline_.spans.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(index), kind, task,
                               static_cast<std::int64_t>(worker.claim), worker.since, end});
    worker.since = end;
    timeline_.makespan = max(timeline_.makespan, end);
  }

  void claim(std::size_t rank, std::size_t index) {
    RankState& state = ranks_[rank];
    Worker& worker = state.workers[index];
    std::size_t& next = options_.claim == Claim::fixed ? worker.next_static : state.next_claim;
    if (next >= schedule_.ranks[rank].tasks.size()) return;
    worker.claim = next;
    next += options_.claim == Claim::fixed ? state.workers.size() : 1;
    start(rank, index);
  }

  void start(std::size_t rank, std::size_t index) {
    Worker& worker = ranks_[rank].workers[index];
    for (const auto& wait : schedule_.ranks[rank].waits[worker.claim]) {
      Flag& waited = flag(rank, wait.flag);
      if (waited.value >= wait.count) continue;
      waited.waiters.push_back(index);
      return;
    }
    span(rank, index, SpanKind::dependency, now_);
    const Work& work = schedule_.ranks[rank].work[worker.claim];
    const Nanos products = Flops{work.flops} / machine_.rate / machine_.sm_clock;
    const Nanos operands = Bytes{work.load_bytes} / machine_.memory;
    span(rank, index, SpanKind::operand_stall, now_ + max(Nanos{0}, operands - products));
    span(rank, index, SpanKind::compute, now_ + max(products, operands));
    change_computing(rank, 1);
    push({now_ + max(products, operands), 0, EventKind::computed, rank, index, 0});
  }

  void store(std::size_t rank, std::size_t index) {
    change_computing(rank, -1);
    Worker& worker = ranks_[rank].workers[index];
    Bytes remote{0}, local{0};
    for (const auto& send : schedule_.ranks[rank].sends[worker.claim]) {
      (static_cast<std::size_t>(send.rank) == rank ? local : remote) += Bytes{static_cast<double>(send.bytes)};
    }
    const Nanos local_time = local / (machine_.port.free_issue * machine_.sm_clock);
    PortPool& port = ranks_[rank].port;
    worker.store_free = now_ + local_time + (remote > Bytes{0} ? port.free_time(remote) : Nanos{0});
    if (remote > Bytes{0}) {
      port.begin(static_cast<int>(index), remote, now_ + local_time, static_cast<std::int64_t>(worker.claim));
      watch(rank);
      return;
    }
    push({worker.store_free, 0, EventKind::stored, rank, index, 0});
  }

  void publish_locally(std::size_t rank, std::size_t index) {
    raise(rank, ranks_[rank].workers[index].claim, Target::peers);  // without bytes: nothing to wait for
    finish(rank, index, now_);
  }

  // The port's next event changes with every burst that begins or ends.
  void watch(std::size_t rank) {
    const Nanos at = ranks_[rank].port.next_event();
    if (at < kNever) push({at, 0, EventKind::port, rank, 0, 0, ++ranks_[rank].port_version});
  }

  void step_port(const Event& event) {
    RankState& state = ranks_[event.rank];
    if (event.version != state.port_version) return;
    reached_.clear();
    state.port.step(reached_);
    if (options_.record_levels) {
      timeline_.levels.push_back({static_cast<std::int32_t>(event.rank), now_, state.port.outstanding()});
    }
    for (const auto& reached : reached_) {
      if (reached.level == Completion::issued) finish(event.rank, static_cast<std::size_t>(reached.worker), reached.at);
      if (reached.level != Completion::remote_visible) continue;
      push({reached.at, 0, EventKind::visible, event.rank, 0, static_cast<std::size_t>(reached.tag)});
      timeline_.makespan = max(timeline_.makespan, reached.at);
    }
    watch(event.rank);
  }

  // The last store issued: own flags rise at once, the worker goes on.
  void finish(std::size_t rank, std::size_t index, Nanos at) {
    Worker& worker = ranks_[rank].workers[index];
    span(rank, index, SpanKind::compute, min(at, worker.store_free));
    span(rank, index, SpanKind::sender_stall, at);
    ++ranks_[rank].num_done;
    raise(rank, worker.claim, Target::own_rank);
    claim(rank, index);
  }

  void raise(std::size_t rank, std::size_t claimed, Target to) {
    for (const auto& raise : schedule_.ranks[rank].raises[claimed]) {
      const auto target = static_cast<std::size_t>(raise.rank);
      if ((target == rank) != (to == Target::own_rank)) continue;
      Flag& raised = flag(target, raise.flag);
      raised.value += raise.add;
      for (const auto waiter : std::exchange(raised.waiters, {})) start(target, waiter);
    }
  }

  const Schedule& schedule_;
  const SimMachine& machine_;
  const SimOptions& options_;
  std::int32_t num_flags_;
  std::vector<RankState> ranks_;
  std::vector<Flag> flags_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t sequence_ = 0;
  Nanos now_{0};
  std::vector<PortPool::Event> reached_;
  Timeline timeline_;
};

}  // namespace

SimMachine sim_machine(const Machine& machine, const std::string& dtype, const std::string& path,
                       const std::string& dst, int workers) {
  return {machine.sm_clock, machine.rate(dtype), machine.memory / workers, machine.port(path, dst)};
}

Timeline simulate(const Schedule& schedule, const SimMachine& machine, const SimOptions& options) {
  require(options.workers_per_rank >= 1, "workers must be at least 1, found {}", options.workers_per_rank);
  return Simulation(schedule, machine, options).run();
}

}  // namespace xs
