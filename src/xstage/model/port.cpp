#include "xstage/model/port.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "xstage/core/error.hpp"

namespace xs {

namespace {

constexpr Nanos kNever{std::numeric_limits<double>::infinity()};

// Logarithms of the workers' weights, rising.
std::vector<double> service_logs(const PortParams& path, int count) {
  const auto group_of = [&](int worker) {
    return path.groups.empty() ? 0 : path.groups[static_cast<std::size_t>(worker) % path.groups.size()];
  };
  std::map<int, int> sizes, seen;
  for (int worker = 0; worker < count; ++worker) ++sizes[group_of(worker)];
  std::vector<double> logs;
  for (int worker = 0; worker < count; ++worker) {
    const int size = sizes[group_of(worker)], index = seen[group_of(worker)]++;
    const double place = size > 1 ? 2.0 * index / (size - 1) - 1 : 0;
    logs.push_back(path.spread * place - path.group_fairness * std::log(size));
  }
  std::ranges::sort(logs);
  return logs;
}

// Of part `index` of `count` equal parts of the sorted values, which may cut a value.
double mean_of_part(const std::vector<double>& values, int index, int count) {
  const double width = static_cast<double>(values.size()) / count;
  const double begin = index * width, end = begin + width;
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double from = static_cast<double>(i);
    sum += values[i] * std::max(0.0, std::min(end, from + 1) - std::max(begin, from));
  }
  return sum / width;
}

}  // namespace

PortPool::PortPool(const PortParams& params, GigaHertz sm_clock, int num_workers, bool in_step)
    : sm_clock_(sm_clock),
      drain_(params.drain),
      capacity_(params.capacity_of(num_workers)),
      disorder_(params.disorder),
      visible_latency_(params.visible_latency),
      next_(kNever) {
  add_classes(params, num_workers, in_step);
}

int PortPool::add_workers(const PortParams& path, int count) {
  const int first = static_cast<int>(workers_.size());
  add_classes(path, count, false);
  return first;
}

void PortPool::add_classes(const PortParams& path, int count, bool in_step) {
  const bool staged = path.engine_capacity > Bytes{0} && path.engine < path.free_issue;
  paths_.push_back({path.burst_overhead / sm_clock_, path.free_issue * sm_clock_,
                    (staged ? path.engine : path.free_issue) * sm_clock_, staged ? path.engine_capacity : Bytes{0}});
  const auto shares = service_logs(path, count);
  // Workers that are served alike stay in one class: they could only fall out of step by round-off.
  const int num_classes = shares.front() == shares.back() ? 1 : kClasses;
  const int num_workers = in_step ? kClasses : count;
  const auto first = classes_.size();
  for (int i = 0; i < num_classes; ++i) {
    classes_.push_back(
        {paths_.size() - 1, std::exp(mean_of_part(shares, i, num_classes)), static_cast<double>(count) / num_workers});
    filling_order_.push_back(classes_.size() - 1);
  }
  std::ranges::stable_sort(filling_order_, {}, [this](std::size_t i) {
    return (paths_[classes_[i].path].engine / classes_[i].weight).value;
  });
  for (int i = 0; i < num_workers; ++i) {
    workers_.push_back({first + static_cast<std::size_t>((2 * i + 1) * num_classes / (2 * num_workers))});
  }
}

Nanos PortPool::free_time(Bytes bytes, int worker) const {
  const Path& path = path_of(worker);
  return path.overhead + max(bytes / path.free_issue, max(Bytes{0}, bytes - path.engine_capacity) / path.engine);
}

void PortPool::begin(int worker, Bytes bytes, Nanos at, std::int64_t tag) {
  check(bytes > Bytes{0} && at >= now_ && workers_[static_cast<std::size_t>(worker)].conditions == 0,
        "PortPool::begin: worker {}, {} bytes at {} ns, now {} ns", worker, bytes.value, at.value, now_.value);
  workers_[static_cast<std::size_t>(worker)].conditions = 1;
  const Nanos start = at + path_of(worker).overhead;
  starts_.push({start, sequence_++, {worker, tag, bytes, at}});
  next_ = min(next_, max(now_, start));
}

// Between events rates are constant. The link drains all the time while it has a backlog or gets more than it can
// take, else a part of the time.
Nanos PortPool::draining(Nanos passed) const {
  if (full_ || inflow_ >= drain_) return passed;
  const Nanos backlog = min(passed, outstanding_ / (drain_ - inflow_));
  return backlog + (passed - backlog) * (inflow_ / drain_);
}

void PortPool::advance(Nanos to) {
  const Nanos passed = to - now_;
  now_ = to;
  busy_ += draining(passed);
  if (!draining_.empty() && passed > Nanos{0}) drained_ += drain_progress(passed);
  for (Class& service : classes_) service.progress += service.rate * passed;
  if (!full_) outstanding_ = max(Bytes{0}, min(capacity_, outstanding_ + inflow_ * passed - drain_ * passed));
}

// Everyone enters at the rate of its own stage. When the shared stage is full, the drain is split by weight, and what
// a worker cannot use of its part goes to the others.
void PortPool::share_rates() {
  inflow_ = {0};
  double weights = 0;
  for (Class& service : classes_) {
    const double count = service.storing * service.multiplicity;
    service.rate = paths_[service.path].engine;
    inflow_ += service.rate * count;
    weights += service.weight * count;
  }
  full_ = inflow_ > drain_ && outstanding_ >= capacity_ * (1 - 1e-12);
  if (!full_) return;
  inflow_ = drain_;
  BytesPerNano left = drain_;
  for (const std::size_t i : filling_order_) {  // from the first that its own stage does not limit, none is
    Class& service = classes_[i];
    const double count = service.storing * service.multiplicity;
    if (count == 0) continue;
    service.rate = min(service.rate, left * (service.weight / weights));
    left -= service.rate * count;
    weights -= count * service.weight;
  }
}

Nanos PortPool::next_end(const Class& service) const {
  if (service.ends.empty()) return kNever;
  return now_ + max(Bytes{0}, service.ends.top().progress - service.progress) / service.rate;
}

// Bytes leave at random: each of the outstanding ones with the same probability, so what is left of those that were
// there shrinks by drain / outstanding, of which this is the integral. First in, first out only counts bytes.
double PortPool::drain_progress(Nanos passed) const {
  const Bytes drained = drain_ * passed;
  if (disorder_ == 0) return drained.value;
  const Bytes change = full_ ? Bytes{0} : inflow_ * passed - drained;
  if (change == Bytes{0}) return drained / outstanding_;
  return drained / change * std::log1p(std::max(change / outstanding_, -1 + 1e-12));
}

Nanos PortPool::next_drained() const {
  if (draining_.empty()) return kNever;
  const double left = std::max(0.0, draining_.top().target - drained_);
  if (disorder_ == 0) return now_ + Bytes{left} / drain_;
  const BytesPerNano change = full_ ? BytesPerNano{0} : inflow_ - drain_;
  if (change == BytesPerNano{0}) return now_ + outstanding_ / drain_ * left;
  return now_ + outstanding_ * std::expm1(left * (change / drain_)) / change;
}

Nanos PortPool::next_fill() const {
  if (full_ || inflow_ <= drain_) return kNever;
  return now_ + (capacity_ - outstanding_) / (inflow_ - drain_);
}

void PortPool::find_next() {
  next_ = min(next_fill(), next_drained());
  if (!starts_.empty()) next_ = min(next_, max(now_, starts_.top().at));
  if (!issue_ends_.empty()) next_ = min(next_, max(now_, issue_ends_.top().at));
  for (const Class& service : classes_) next_ = min(next_, next_end(service));
}

// What happens in one instant is taken in this order: ends before starts, since who has ended no longer competes.
void PortPool::step(std::vector<Event>& events) {
  const Nanos next = next_;
  check(next < kNever, "PortPool::step without a burst");
  Class* reached = nullptr;
  for (Class& service : classes_) {
    if (next_end(service) <= next) reached = &service;
  }
  const bool fills = next_fill() <= next;
  const bool drains = next_drained() <= next;
  advance(next);
  if (reached != nullptr) {
    end(*reached, events);
  } else if (!issue_ends_.empty() && issue_ends_.top().at <= now_) {
    const Burst burst = issue_ends_.top().burst;
    issue_ends_.pop();
    meet(burst, events);
  } else if (!starts_.empty() && starts_.top().at <= now_) {
    start(starts_.top());
    starts_.pop();
  } else if (drains) {
    const Draining drained = draining_.top();
    draining_.pop();
    drained_ = std::max(drained_, drained.target);
    const Burst& burst = drained.burst;
    events.push_back({Completion::remote_visible, burst.worker, burst.tag, burst.begin, now_ + visible_latency_});
  } else if (fills) {
    outstanding_ = capacity_;
  }
  share_rates();
  find_next();
}

void PortPool::start(const Timed& start) {
  const Burst& burst = start.burst;
  Worker& worker = workers_[static_cast<std::size_t>(burst.worker)];
  Class& service = classes_[worker.service];
  const Path& path = paths_[service.path];
  if (!worker.storing) {
    worker.storing = true;
    worker.target = service.progress;
    ++service.storing;
  }
  worker.target += burst.bytes;
  if (path.engine_capacity > Bytes{0}) {
    // Issued when there was room for the last byte in the worker's own stage, and not before its own rate allows.
    worker.conditions = 2;
    const Bytes room = max(service.progress, worker.target - path.engine_capacity);
    service.ends.push({room, start.sequence, burst, Completion::issued});
    issue_ends_.push({now_ + burst.bytes / path.free_issue, start.sequence, burst});
  }
  service.ends.push({worker.target, start.sequence, burst, Completion::source_free});
}

void PortPool::end(Class& service, std::vector<Event>& events) {
  const Reached end = service.ends.top();
  service.ends.pop();
  service.progress = max(service.progress, end.progress);
  if (end.level == Completion::issued) return meet(end.burst, events);
  Worker& worker = workers_[static_cast<std::size_t>(end.burst.worker)];
  if (paths_[service.path].engine_capacity == Bytes{0}) meet(end.burst, events);
  events.push_back({Completion::source_free, end.burst.worker, end.burst.tag, end.burst.begin, now_});
  draining_.push({drained_ + (disorder_ == 0 ? outstanding_.value : disorder_), end.sequence, end.burst});
  if (worker.target > end.progress) return;  // a later burst follows without a break
  worker.storing = false;
  --service.storing;
}

void PortPool::meet(const Burst& burst, std::vector<Event>& events) {
  Worker& worker = workers_[static_cast<std::size_t>(burst.worker)];
  if (--worker.conditions > 0) return;
  events.push_back({Completion::issued, burst.worker, burst.tag, burst.begin, now_});
}

BurstPrediction predict(const PortParams& params, GigaHertz sm_clock, const BurstPattern& pattern) {
  PortPool pool(params, sm_clock, pattern.workers, true);
  for (int worker = 0; worker < PortPool::kClasses; ++worker) pool.begin(worker, pattern.bytes, Nanos{0});
  Nanos total{0}, first{0}, last{0}, done{0}, visible{0};
  std::vector<PortPool::Event> events;
  while (pool.next_event() < kNever) {
    events.clear();
    pool.step(events);
    for (const auto& event : events) {
      const bool is_last = event.tag == pattern.bursts - 1;
      if (event.level == Completion::issued) {
        const Nanos issue = event.at - event.begin;
        total += issue;
        done -= event.at;
        if (event.tag == 0) first += issue;
        if (is_last) last += issue, visible -= event.at;
      }
      if (event.level == Completion::remote_visible && is_last) visible += event.at;
      if (event.level != pattern.await) continue;
      done += event.at;
      if (!is_last) pool.begin(event.worker, pattern.bytes, event.at + pattern.gap / sm_clock, event.tag + 1);
    }
  }
  constexpr double kWorkers = PortPool::kClasses;
  BurstPrediction result;
  result.free = pool.free_time(pattern.bytes) * sm_clock;
  result.mean_issue = total / (kWorkers * pattern.bursts) * sm_clock;
  result.mean_done = done / (kWorkers * pattern.bursts) * sm_clock;
  result.first_issue = first / kWorkers * sm_clock;
  result.last_issue = last / kWorkers * sm_clock;
  result.visible_after_last = visible / kWorkers;
  return result;
}

namespace {

bool stalls(const PortParams& params, GigaHertz sm_clock, const BurstPattern& pattern) {
  const auto told = predict(params, sm_clock, pattern);
  return told.mean_issue > told.free * 1.1;
}

// Where `beyond` turns true between low and high, to a thousandth.
template <class Beyond>
double bisect(double low, double high, Beyond&& beyond) {
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (beyond(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

Bytes onset_bytes(const PortParams& params, GigaHertz sm_clock, BurstPattern pattern) {
  const auto stalls_at = [&](double bytes) {
    pattern.bytes = {bytes};
    return stalls(params, sm_clock, pattern);
  };
  constexpr double kLeast = 16, kMost = 1 << 30;
  return {stalls_at(kMost) ? bisect(kLeast, kMost, stalls_at) : kNever.value};
}

Cycles recovery_gap(const PortParams& params, GigaHertz sm_clock, BurstPattern pattern) {
  const auto recovered_at = [&](double gap) {
    pattern.gap = {gap};
    return !stalls(params, sm_clock, pattern);
  };
  if (recovered_at(0)) return {0};
  // A first burst that is larger than the stage stalls after any gap.
  constexpr double kLeast = 1, kMost = 1e12;
  return {recovered_at(kMost) ? bisect(kLeast, kMost, recovered_at) : kNever.value};
}

}  // namespace xs
