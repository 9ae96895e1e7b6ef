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

// Between events the number of storing workers is constant, so the pool's rates change at most once more: when it
// becomes full, or when it runs empty.
void PortPool::advance(Nanos to) {
  Nanos left = to - now_;
  now_ = to;
  const auto storing = static_cast<double>(flights_.size());
  const BytesPerNano inflow = storing * free_issue_;
  if (inflow > drain_) {
    const Nanos filling = min(left, (capacity_ - outstanding_) / (inflow - drain_));
    outstanding_ = min(capacity_, outstanding_ + (inflow - drain_) * filling);
    progress_ += free_issue_ * filling + drain_ / storing * (left - filling);
    busy_ += left;
    return;
  }
  progress_ += free_issue_ * left;
  const Nanos draining = min(left, outstanding_ / (drain_ - inflow));
  outstanding_ = max(Bytes{0}, outstanding_ - (drain_ - inflow) * draining);
  busy_ += draining + (left - draining) * (inflow / drain_);
}

Nanos PortPool::next_end() const {
  if (flights_.empty()) return kNever;
  const Bytes left = max(Bytes{0}, flights_.top().until - progress_);
  const auto storing = static_cast<double>(flights_.size());
  const BytesPerNano inflow = storing * free_issue_;
  if (inflow > drain_) {
    const Nanos filling = (capacity_ - outstanding_) / (inflow - drain_);
    const Bytes issued = free_issue_ * filling;
    if (left > issued) return now_ + filling + (left - issued) / (drain_ / storing);
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
