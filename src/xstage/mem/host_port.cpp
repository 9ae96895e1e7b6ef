#include "xstage/mem/host_port.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"

namespace xs {
namespace {

constexpr std::size_t kChunk = 16384;  // bytes that drain, and move, as one
constexpr std::size_t kWindow = 64;    // items among which a shuffled one is chosen

// Whether queue[index] may become visible next: no call of its sender's waits before it, and a call waits for all that
// its sender put before.
template <class Queue>
bool may_overtake(const Queue& queue, std::size_t index) {
  return std::none_of(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(index), [&](const auto& earlier) {
    return earlier.sender == queue[index].sender && (earlier.then || queue[index].then);
  });
}

}  // namespace

void wait_precisely() { ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); }

HostPort::HostPort(const HostPortOptions& options)
    : options_(options),
      most_held_(2 * options.capacity + static_cast<std::size_t>((options.drain * options.visible_latency).value)) {
  require(options.drain > BytesPerNano{0} && options.capacity > 0 && options.visible_latency >= Nanos{0},
          "a port needs a drain and a capacity above 0 and a latency of at least 0, found {} bytes/ns, {} bytes, {} ns",
          options.drain.value, options.capacity, options.visible_latency.value);
  mover_ = std::jthread([this] { move(); });
}

HostPort::~HostPort() { stop(); }

void HostPort::put(std::span<std::byte> target, std::span<const std::byte> source) {
  require(target.size() == source.size(), "put: {} bytes do not go into a target of {}", source.size(), target.size());
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < source.size(); at += kChunk) {
    const std::size_t size = std::min(kChunk, source.size() - at);
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) bytes = std::move(spare_.back()), spare_.pop_back();
    }
    bytes.assign(source.data() + at, source.data() + at + size);
    std::unique_lock lock(mutex_);
    wait_for_mover(lock, size);
    push({std::this_thread::get_id(), target.subspan(at, size), std::move(bytes), {}});
    wait_for_room(lock);
  }
}

void HostPort::then(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  require_running();
  push({std::this_thread::get_id(), {}, {}, std::move(function)});
}

void HostPort::flush() {
  const auto visible = std::make_shared<bool>(false);  // of mutex_; outlives a flush that throws
  then([this, visible] {
    const std::lock_guard lock(mutex_);
    *visible = true;
  });
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return *visible || stopped_; });
  if (!*visible) require_running();
}

void HostPort::settle() {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return stopped_ || (queue_.empty() && !moving_); });
  require_running();
}

void HostPort::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (auto* waiting : {&room_, &moved_, &arrived_}) waiting->notify_all();
}

void HostPort::require_running() const {
  if (stopped_) fail(ErrorKind::timeout, "the port was stopped with {} bytes not yet visible", held_);
}

// With the lock held.
void HostPort::push(Item item) {
  const Bytes bytes{static_cast<double>(item.bytes.size())};
  drained_at_ = max(drained_at_, now()) + bytes / options_.drain;
  held_ += item.bytes.size();
  due_.push_back(drained_at_ + options_.visible_latency);
  queue_.push_back(std::move(item));
  if (queue_.size() == 1) arrived_.notify_one();
}

void HostPort::wait_for_mover(std::unique_lock<std::mutex>& lock, std::size_t bytes) {
  moved_.wait(lock, [&] { return stopped_ || held_ == 0 || held_ + bytes <= most_held_; });
  require_running();
}

// Until no more than the capacity is left of all that has entered so far.
void HostPort::wait_for_room(std::unique_lock<std::mutex>& lock) {
  const Nanos room_at = drained_at_ - Bytes{static_cast<double>(options_.capacity)} / options_.drain;
  while (true) {
    require_running();
    const Nanos wait = room_at - now();
    if (wait <= Nanos{0}) return;
    room_.wait_for(lock, std::chrono::duration<double, std::nano>(wait.value));
  }
}

// With the lock held: the item that becomes visible now.
HostPort::Item HostPort::take() {
  std::size_t chosen = 0;
  if (options_.reorder_seed) {
    const RandomKey key{*options_.reorder_seed, 0};
    const auto window = static_cast<std::int64_t>(std::min(kWindow, queue_.size()));
    chosen = static_cast<std::size_t>(key.below(num_taken_++, window));
    while (!may_overtake(queue_, chosen)) --chosen;  // the first always may
  }
  Item item = std::move(queue_[chosen]);
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(chosen));
  due_.pop_front();
  return item;
}

void HostPort::move() {
  wait_precisely();
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (queue_.empty()) {
      arrived_.wait(lock);
      continue;
    }
    if (const Nanos wait = due_.front() - now(); wait > Nanos{0}) {
      arrived_.wait_for(lock, std::chrono::duration<double, std::nano>(wait.value));
      continue;
    }
    Item item = take();
    moving_ = true;
    lock.unlock();
    if (item.then) {
      item.then();
    } else {
      std::memcpy(item.target.data(), item.bytes.data(), item.bytes.size());
    }
    lock.lock();
    moving_ = false;
    held_ -= item.bytes.size();
    if (!item.bytes.empty()) spare_.push_back(std::move(item.bytes));
    moved_.notify_all();
  }
}

}  // namespace xs
