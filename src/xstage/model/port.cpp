#include "xstage/model/port.hpp"

#include <limits>

#include "xstage/core/error.hpp"

namespace xs {

namespace {
constexpr Nanos kNever{std::numeric_limits<double>::infinity()};
}

PortParams PortParams::share(int count) const {
  PortParams one = *this;
  one.drain = drain / count;
  one.capacity = capacity / count;
  return one;
}

PortPool::PortPool(const PortParams& params, GigaHertz sm_clock)
    : free_issue_(params.free_issue * sm_clock),
      drain_(params.drain),
      capacity_(params.capacity),
      overhead_(params.burst_overhead / sm_clock),
      visible_latency_(params.visible_latency) {}

Nanos PortPool::free_time(Bytes bytes) const { return overhead_ + bytes / free_issue_; }

void PortPool::begin(int worker, Bytes bytes, Nanos at) {
  check(bytes > Bytes{0} && at >= now_, "PortPool::begin: {} bytes at {} ns, now {} ns", bytes.value, at.value,
        now_.value);
  starts_.push({at + overhead_, sequence_++, worker, bytes, at});
}

// The link drains all the time while it has a backlog or gets more than it can take, else a part of it.
Nanos PortPool::draining(Nanos passed) const {
  const BytesPerNano in = inflow();
  if (in > drain_) return passed;
  const Nanos backlog = min(passed, outstanding_ / (drain_ - in));
  return backlog + (passed - backlog) * (in / drain_);
}

// Between events the number of storing workers is constant, so the pool's rates change at most once more: when it
// becomes full, or when it runs empty.
void PortPool::advance(Nanos to) {
  const Nanos passed = to - now_;
  busy_ += draining(passed);
  now_ = to;
  const BytesPerNano in = inflow();
  if (in > drain_) {
    const Nanos filling = min(passed, (capacity_ - outstanding_) / (in - drain_));
    outstanding_ = min(capacity_, outstanding_ + (in - drain_) * filling);
    progress_ += free_issue_ * filling + drain_ / static_cast<double>(flights_.size()) * (passed - filling);
    return;
  }
  progress_ += free_issue_ * passed;
  outstanding_ = max(Bytes{0}, outstanding_ - (drain_ - in) * passed);
}

Nanos PortPool::next_end() const {
  if (flights_.empty()) return kNever;
  const Bytes left = max(Bytes{0}, flights_.top().until - progress_);
  if (inflow() > drain_) {
    const Nanos filling = (capacity_ - outstanding_) / (inflow() - drain_);
    const Bytes issued = free_issue_ * filling;
    if (left > issued) return now_ + filling + (left - issued) / (drain_ / static_cast<double>(flights_.size()));
  }
  return now_ + left / free_issue_;
}

Nanos PortPool::next_event() const {
  const Nanos start = starts_.empty() ? kNever : max(now_, starts_.top().at);
  return min(start, next_end());
}

void PortPool::step(std::vector<Issued>& ended) {
  const Nanos end = next_end();
  // A burst that ends in the instant in which another begins ends first: it no longer competes.
  if (starts_.empty() || end <= starts_.top().at) {
    check(end < kNever, "PortPool::step without a burst");
    const Flight flight = flights_.top();
    advance(end);
    progress_ = max(progress_, flight.until);
    flights_.pop();
    ended.push_back({flight.worker, flight.called, now_, now_ + outstanding_ / drain_ + visible_latency_});
    return;
  }
  const Start start = starts_.top();
  starts_.pop();
  advance(max(now_, start.at));
  flights_.push({progress_ + start.bytes, start.sequence, start.worker, start.called});
}

BurstPrediction predict(const PortParams& params, GigaHertz sm_clock, const BurstPattern& pattern) {
  // In the plain form the workers stay in step: one of them on its share of the port tells for all.
  PortPool pool(params.share(pattern.workers), sm_clock);
  std::vector<PortPool::Issued> ended;
  BurstPrediction result;
  result.free = pool.free_time(pattern.bytes) * sm_clock;
  Nanos at{0};
  Nanos total{0};
  for (int burst = 0; burst < pattern.bursts; ++burst) {
    pool.begin(0, pattern.bytes, at);
    ended.clear();
    while (ended.empty()) pool.step(ended);
    const auto& issued = ended.front();
    const Nanos issue = issued.end - issued.begin;
    total += issue;
    if (burst == 0) result.first_issue = issue * sm_clock;
    result.last_issue = issue * sm_clock;
    result.visible_after_last = issued.remote_visible - issued.end;
    at = (pattern.await == Completion::issued ? issued.end : issued.remote_visible) + pattern.gap / sm_clock;
  }
  result.mean_issue = total / static_cast<double>(pattern.bursts) * sm_clock;
  return result;
}

}  // namespace xs
