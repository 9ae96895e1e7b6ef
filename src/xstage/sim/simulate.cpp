#include "xstage/sim/simulate.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

constexpr Nanos kNever{std::numeric_limits<double>::infinity()};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const SimMachine& machine, const SimOptions& options)
      : schedule_(schedule),
        machine_(machine),
        options_(options),
        task_overhead_(machine.task_overhead + (options.claim == Claim::counter ? machine.counter_claim : Cycles{0})),
        num_workers_(static_cast<std::size_t>(options.workers_per_rank)),
        num_flags_(static_cast<std::size_t>(schedule.num_flags())) {
    const auto num_ranks = schedule.ranks.size();
    timeline_.num_ranks = static_cast<int>(num_ranks);
    timeline_.workers_per_rank = options.workers_per_rank;
    timeline_.totals.resize(num_ranks);
    flags_.resize(num_ranks * num_flags_);
    const bool has_copies = uses(Route::copy), has_pulls = uses(Route::pull);
    require(!has_copies || machine.copy_engine, "simulate: the schedule copies, but the machine has no copy engine");
    const PortParams pull = pull_path();
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      const auto condition = options.ranks.empty() ? RankCondition{} : options.ranks[rank];
      const GigaHertz clock = machine.sm_clock * condition.clock_factor;
      RankState& state =
          ranks_.emplace_back(PortPool(machine.port, clock, options.workers_per_rank), clock, options.workers_per_rank);
      if (machine.dispatch_issue) add_senders(rank);
      if (machine.copy_engine) state.copy_engine = state.port.add_workers(*machine.copy_engine, 1);
      if (has_pulls) state.pullers = state.port.add_workers(pull, timeline_.num_ranks * options.workers_per_rank);
      push(condition.start, EventKind::begin, rank);
    }
  }

  Timeline run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      switch (event.kind) {
        case EventKind::begin:
          begin(event.rank);
          break;
        case EventKind::arrived:
          compute(event.rank, event.worker);
          break;
        case EventKind::computed:
          computed(event.rank, event.worker);
          break;
        case EventKind::port:
          step_port(event.rank);
          break;
        case EventKind::stored:
          stored(event.rank, event.worker);
          break;
        case EventKind::raised:
          raise(event.rank, event.claim, Target::own_rank);
          break;
        case EventKind::visible:
          raise(event.rank, event.claim, Target::peers);
          visible(event.rank, event.worker);
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
  // Raises of a claim that wait until so many of its worker's bursts are remote visible.
  struct Release {
    std::int64_t bursts;
    std::size_t claim;
    bool to_peers;  // else the port tells when they may
  };
  struct Worker {
    std::size_t claim = 0;      // that it waits for or computes
    std::size_t next_wait = 0;  // of that claim
    std::size_t next_static = 0;
    Nanos since{0};                               // end of its last span
    std::vector<std::size_t> storing;             // claims whose stores have not issued, the first of which stores
    bool through_port = false;                    // that one's bytes
    Nanos store_free{0};                          // when that one's stores would end without a stall
    bool blocked = false;                         // by its stores
    int pulls = 0;                                // that have not arrived
    std::int64_t bursts = 0, visible_bursts = 0;  // to peers
    std::vector<Release> releases;
  };
  struct Copy {
    std::size_t claim;
    Bytes bytes;
  };
  struct RankState {
    RankState(PortPool pool, GigaHertz sm_clock, int num_workers)
        : port(std::move(pool)), clock(sm_clock), workers(static_cast<std::size_t>(num_workers)) {
      for (std::size_t i = 0; i < workers.size(); ++i) workers[i].next_static = i;
    }
    PortPool port;
    GigaHertz clock;
    Nanos port_event = kNever;           // when it will be looked at; never later than its next event
    int copy_engine = -1, pullers = -1;  // among the port's workers, the first of them
    std::queue<Copy> copies;             // the first of which moves
    std::size_t num_dispatch = 0;        // tasks of senders, the first
    std::size_t next_claim = 0, num_done = 0;
    int computing = 0;   // workers
    Nanos busy_seen{0};  // the port's busy time when that number last changed
    Nanos hidden{0};     // busy time, once for each worker that computed meanwhile
    std::vector<Worker> workers;
  };
  struct Flag {
    std::int64_t value = 0;
    std::int64_t wanted = 0;           // the least that a waiter waits for
    std::vector<std::size_t> waiters;  // workers of the rank
  };
  enum class EventKind : std::uint8_t { begin, arrived, computed, stored, port, raised, visible };
  enum class Target { own_rank, peers };
  struct Event {
    Nanos at;
    std::int64_t sequence;  // breaks ties
    std::uint32_t rank;
    std::uint32_t worker;  // arrived, computed, stored, visible
    std::uint32_t claim;   // raised, visible
    EventKind kind;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
  };

  const RankSchedule& tasks(std::size_t rank) const { return schedule_.ranks[rank]; }
  Flag& flag(std::size_t rank, std::int32_t index) {
    return flags_[rank * num_flags_ + static_cast<std::size_t>(index)];
  }

  bool uses(Route route) const {
    return std::ranges::any_of(schedule_.ranks, [&](const RankSchedule& rank) {
      return std::ranges::any_of(rank.work, [&](const Work& work) { return work.route == route; });
    });
  }

  // Behind the workers, in the port too.
  void add_senders(std::size_t rank) {
    RankState& state = ranks_[rank];
    state.num_dispatch =
        static_cast<std::size_t>(std::ranges::count(tasks(rank).tasks, TaskKind::dispatch, &Task::kind));
    state.next_claim = state.num_dispatch;
    for (auto& worker : state.workers) worker.next_static += state.num_dispatch;
    PortParams path = machine_.port;
    path.free_issue = *machine_.dispatch_issue;
    state.port.add_workers(path, options_.workers_per_rank);
    for (std::size_t i = 0; i < num_workers_; ++i) state.workers.emplace_back().next_static = i;
  }
  bool is_sender(std::size_t index) const { return index >= num_workers_; }

  // Worker w of rank r loads over a peer's link as puller w * ranks + r, as fast and served like the peer's worker w.
  PortParams pull_path() const {
    PortParams pull = machine_.port;
    pull.burst_overhead = {0};
    pull.engine_capacity = {0};
    pull.groups.clear();
    const auto& groups = machine_.port.groups;
    for (std::size_t worker = 0; worker < static_cast<std::size_t>(options_.workers_per_rank); ++worker) {
      const int group = groups.empty() ? 0 : groups[worker % groups.size()];
      for (int rank = 0; rank < timeline_.num_ranks; ++rank) pull.groups.push_back(group * timeline_.num_ranks + rank);
    }
    return pull;
  }

  void push(Nanos at, EventKind kind, std::size_t rank, std::size_t worker = 0, std::size_t claim = 0) {
    events_.push({at, sequence_++, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(worker),
                  static_cast<std::uint32_t>(claim), kind});
  }

  void change_computing(std::size_t rank, int by) {
    RankState& state = ranks_[rank];
    const Nanos busy = state.port.busy_until(now_);
    state.hidden += (busy - state.busy_seen) * state.computing;
    state.busy_seen = busy;
    state.computing += by;
  }

  // Ends the worker's current span at `end`; spans of no length are not recorded.
  void span(std::size_t rank, std::size_t index, SpanKind kind, Nanos end, std::size_t claim) {
    Worker& worker = ranks_[rank].workers[index];
    if (end <= worker.since || is_sender(index)) return;
    timeline_.totals[rank][static_cast<std::size_t>(kind)] += end - worker.since;
    if (options_.record_spans) {
      timeline_.spans.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(index), kind,
                                 tasks(rank).tasks[claim], static_cast<std::int64_t>(claim), worker.since, end});
    }
    worker.since = end;
    timeline_.makespan = max(timeline_.makespan, end);
  }

  void begin(std::size_t rank) {
    for (std::size_t index = 0; index < ranks_[rank].workers.size(); ++index) {
      ranks_[rank].workers[index].since = now_;
      claim(rank, index);
    }
  }

  void claim(std::size_t rank, std::size_t index) {
    RankState& state = ranks_[rank];
    Worker& worker = state.workers[index];
    const bool by_number = options_.claim == Claim::fixed || is_sender(index);
    std::size_t& next = by_number ? worker.next_static : state.next_claim;
    if (next >= (is_sender(index) ? state.num_dispatch : tasks(rank).tasks.size())) {
      worker.blocked = !worker.storing.empty();
      return;
    }
    worker.claim = next;
    worker.next_wait = 0;
    next += by_number ? num_workers_ : 1;
    start(rank, index);
  }

  void start(std::size_t rank, std::size_t index) {
    Worker& worker = ranks_[rank].workers[index];
    const auto waits = tasks(rank).waits[worker.claim];
    for (; worker.next_wait < waits.size(); ++worker.next_wait) {
      const Wait& wait = waits[worker.next_wait];
      Flag& waited = flag(rank, wait.flag);
      if (waited.value >= wait.count) continue;
      waited.wanted = waited.waiters.empty() ? wait.count : std::min(waited.wanted, wait.count);
      waited.waiters.push_back(index);
      return;
    }
    span(rank, index, SpanKind::dependency, now_, worker.claim);
    tasks(rank).work[worker.claim].route == Route::pull ? pull(rank, index) : compute(rank, index);
  }

  void pull(std::size_t rank, std::size_t index) {
    Worker& worker = ranks_[rank].workers[index];
    const int puller = static_cast<int>(index) * timeline_.num_ranks + static_cast<int>(rank);
    std::map<std::size_t, Bytes> sources;
    for (const auto& send : tasks(rank).sends[worker.claim]) {
      sources[static_cast<std::size_t>(send.rank)] += Bytes{static_cast<double>(send.bytes)};
    }
    sources.erase(rank);  // these rows lie here
    for (const auto& [source, bytes] : sources) {
      RankState& from = ranks_[source];
      from.port.begin(from.pullers + puller, bytes, now_);
      watch(source);
    }
    worker.pulls = static_cast<int>(sources.size());
    if (worker.pulls == 0) compute(rank, index);
  }

  void compute(std::size_t rank, std::size_t index) {
    if (is_sender(index)) return computed(rank, index);
    RankState& state = ranks_[rank];
    const std::size_t claim = state.workers[index].claim;
    const Work& work = tasks(rank).work[claim];
    const Nanos products = Flops{work.flops} / machine_.rate / state.clock + task_overhead_ / state.clock;
    const Nanos operands = Bytes{work.load_bytes} / machine_.memory;
    span(rank, index, SpanKind::operand_stall, now_ + max(Nanos{0}, operands - products), claim);
    span(rank, index, SpanKind::compute, now_ + max(products, operands), claim);
    change_computing(rank, 1);
    push(now_ + max(products, operands), EventKind::computed, rank, index);
  }

  void computed(std::size_t rank, std::size_t index) {
    if (!is_sender(index)) change_computing(rank, -1);
    Worker& worker = ranks_[rank].workers[index];
    worker.storing.push_back(worker.claim);
    if (worker.storing.size() == 1) store(rank, index);
    if (worker.storing.size() < static_cast<std::size_t>(options_.tiles_in_flight)) {
      claim(rank, index);
    } else {
      worker.blocked = true;
    }
  }

  // The stores of the first claim that has not stored.
  void store(std::size_t rank, std::size_t index) {
    RankState& state = ranks_[rank];
    Worker& worker = state.workers[index];
    const std::size_t claim = worker.storing.front();
    const Route route = tasks(rank).work[claim].route;
    Bytes local{0}, remote{0};
    if (route != Route::pull) {
      for (const auto& send : tasks(rank).sends[claim]) {
        (static_cast<std::size_t>(send.rank) == rank ? local : remote) += Bytes{static_cast<double>(send.bytes)};
      }
    }
    const auto issue = is_sender(index) ? *machine_.dispatch_issue : machine_.port.free_issue;
    const Nanos local_end = now_ + local / (issue * state.clock);
    worker.store_free = local_end;
    worker.through_port = remote > Bytes{0};
    if (worker.through_port && route == Route::store) {
      worker.store_free += state.port.free_time(remote, static_cast<int>(index));
      state.port.begin(static_cast<int>(index), remote, local_end, static_cast<std::int64_t>(claim));
      watch(rank);
      ++worker.bursts;
      return;
    }
    if (worker.through_port) {
      state.copies.push({claim, remote});
      if (state.copies.size() == 1) begin_copy(rank);
    }
    push(worker.store_free, EventKind::stored, rank, index);
  }

  void begin_copy(std::size_t rank) {
    RankState& state = ranks_[rank];
    const Copy& copy = state.copies.front();
    state.port.begin(state.copy_engine, copy.bytes, now_, static_cast<std::int64_t>(copy.claim));
    watch(rank);
  }

  // Sees to it that the port's next event is taken. An event that became later is looked at in vain and asked for
  // again.
  void watch(std::size_t rank) {
    RankState& state = ranks_[rank];
    const Nanos at = state.port.next_event();
    if (at >= state.port_event) return;
    state.port_event = at;
    push(at, EventKind::port, rank);
  }

  void step_port(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (now_ != state.port_event) return;  // an earlier one was asked for since
    state.port_event = kNever;
    if (state.port.next_event() > now_) return watch(rank);
    reached_.clear();
    state.port.step(reached_);
    if (options_.record_levels) {
      timeline_.levels.push_back({static_cast<std::int32_t>(rank), now_, state.port.outstanding()});
    }
    for (const auto& reached : reached_) {
      const auto claim = static_cast<std::size_t>(reached.tag);
      if (state.pullers >= 0 && reached.worker >= state.pullers) {
        pulled(reached, reached.worker - state.pullers);
      } else if (reached.level == Completion::remote_visible) {
        push(reached.at, EventKind::visible, rank, static_cast<std::size_t>(reached.worker), claim);
        timeline_.makespan = max(timeline_.makespan, reached.at);
      } else if (reached.level == Completion::issued && reached.worker == state.copy_engine) {
        state.copies.pop();
        if (!state.copies.empty()) begin_copy(rank);
      } else if (reached.level == Completion::issued) {
        stored(rank, static_cast<std::size_t>(reached.worker));
      }
    }
    watch(rank);
  }

  void pulled(const PortPool::Event& reached, int puller) {
    if (reached.level != Completion::remote_visible) return;
    const auto rank = static_cast<std::size_t>(puller % timeline_.num_ranks);
    const auto index = static_cast<std::size_t>(puller / timeline_.num_ranks);
    if (--ranks_[rank].workers[index].pulls == 0) push(reached.at, EventKind::arrived, rank, index);
  }

  // The last store of the worker's first storing claim issued: own flags rise, the next one stores.
  void stored(std::size_t rank, std::size_t index) {
    RankState& state = ranks_[rank];
    Worker& worker = state.workers[index];
    const std::size_t claimed = worker.storing.front();
    worker.storing.erase(worker.storing.begin());
    const bool was_blocked = std::exchange(worker.blocked, false);
    timeline_.makespan = max(timeline_.makespan, now_);
    if (was_blocked) {
      span(rank, index, SpanKind::compute, min(now_, worker.store_free), claimed);
      span(rank, index, SpanKind::sender_stall, now_, claimed);
    }
    ++state.num_done;
    worker.releases.push_back({worker.bursts, claimed, !worker.through_port});
    release(rank, index);
    if (!worker.storing.empty()) store(rank, index);
    if (was_blocked) claim(rank, index);
  }

  void visible(std::size_t rank, std::size_t index) {
    if (index >= ranks_[rank].workers.size()) return;  // a copy engine publishes for itself
    ++ranks_[rank].workers[index].visible_bursts;
    release(rank, index);
  }

  // A release by the threads that stored waits for all their stores, those to peers among them.
  void release(std::size_t rank, std::size_t index) {
    Worker& worker = ranks_[rank].workers[index];
    auto done = worker.releases.begin();
    for (; done != worker.releases.end() && done->bursts <= worker.visible_bursts; ++done) {
      if (done->to_peers) raise(rank, done->claim, Target::peers);
      if (machine_.own_raise > Nanos{0}) {
        push(now_ + machine_.own_raise, EventKind::raised, rank, index, done->claim);
      } else {
        raise(rank, done->claim, Target::own_rank);
      }
    }
    worker.releases.erase(worker.releases.begin(), done);
  }

  void raise(std::size_t rank, std::size_t claimed, Target to) {
    for (const auto& raise : tasks(rank).raises[claimed]) {
      const auto target = static_cast<std::size_t>(raise.rank);
      if ((target == rank) != (to == Target::own_rank)) continue;
      Flag& raised = flag(target, raise.flag);
      raised.value += raise.add;
      if (raised.waiters.empty() || raised.value < raised.wanted) continue;
      for (const auto waiter : std::exchange(raised.waiters, {})) start(target, waiter);
    }
  }

  const Schedule& schedule_;
  const SimMachine& machine_;
  const SimOptions& options_;
  Cycles task_overhead_;
  std::size_t num_workers_;
  std::size_t num_flags_;
  std::vector<RankState> ranks_;
  std::vector<Flag> flags_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t sequence_ = 0;
  Nanos now_{0};
  std::vector<PortPool::Event> reached_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const SimMachine& machine, const SimOptions& options) {
  require(options.workers_per_rank >= 1, "workers must be at least 1, found {}", options.workers_per_rank);
  require(options.tiles_in_flight >= 1, "tiles in flight must be at least 1, found {}", options.tiles_in_flight);
  require(options.ranks.empty() || options.ranks.size() == schedule.ranks.size(),
          "conditions of {} ranks expected, {} found", schedule.ranks.size(), options.ranks.size());
  for (std::size_t rank = 0; rank < options.ranks.size(); ++rank) {
    const auto& [start, clock_factor] = options.ranks[rank];
    require(start >= Nanos{0} && clock_factor > 0,
            "rank {} must start at 0 ns or later and have a clock factor above 0, found {} and {}", rank, start.value,
            clock_factor);
  }
  return Simulation(schedule, machine, options).run();
}

}  // namespace xs
