// One rank publishes a payload, the other reads it: the smallest use of raise() and wait(). Built once as it is and
// once for each mutant of atomic.hpp (cmake/XsMutants.cmake); ThreadSanitizer must be silent about the first and name
// the data race in every other.

#include <chrono>
#include <cstdio>
#include <thread>

#include "xstage/mem/run_ranks.hpp"
#include "xstage/signal/signals.hpp"

int main() {
  using namespace xs;
  Layout layout;
  const auto payload = layout.add("payload", sizeof(int));
  const auto region = Signals::reserve(layout, 1, 2);
  const World world(layout, 2);
  int seen = 0;
  run_ranks(world, [&](Rank rank) {
    Signals signals(rank, region, 1, {});
    if (rank.rank() == 0) {
      const int value = 42;
      rank.put(1, payload, 0, std::as_bytes(std::span(&value, 1)));
      signals.raise(1, 0, 1);
    } else {
      // The flag is up when wait() looks first, so that nothing but the flag orders the read.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      signals.wait(0, 1);
      seen = rank.local_as<int>(payload)[0];
    }
  });
  std::printf("%s\n", seen == 42 ? "payload seen" : "payload missed");
  return seen == 42 ? 0 : 1;
}
