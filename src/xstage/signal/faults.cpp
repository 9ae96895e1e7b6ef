#include "xstage/signal/faults.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "xstage/core/random.hpp"

namespace xs {
namespace {

void sleep(Nanos time) {
  if (time > Nanos{0}) std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(time.value)));
}

}  // namespace

void FaultInjector::step() {
  const std::int64_t step = steps_++;
  const auto rank = static_cast<std::size_t>(rank_);
  if (step == 0 && rank < faults_.late.size()) sleep(faults_.late[rank]);
  if (faults_.max_delay > Nanos{0}) {
    const RandomKey key{faults_.seed, rank};
    sleep(faults_.max_delay * key.uniform(static_cast<std::uint64_t>(step)));
  }
  if (rank_ == faults_.kill.rank && step == faults_.kill.count) ::kill(::getpid(), SIGKILL);
}

bool FaultInjector::drops_raise() {
  const std::int64_t raise = raises_++;
  return rank_ == faults_.drop_raise.rank && raise == faults_.drop_raise.count;
}

}  // namespace xs
