#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "xstage/mem/run_ranks.hpp"
#include "xstage/signal/signals.hpp"

// For tests of signals.

namespace xs {

// A world with one payload word per (source, flag) and flags that tell when it may be read.
struct SignalWorld {
  SignalWorld(int num_ranks, int flags, RanksAre ranks = RanksAre::threads, std::optional<HostPortOptions> port = {})
      : num_flags(flags) {
    payload = layout.add("payload", static_cast<std::size_t>(num_ranks * num_flags) * sizeof(std::int64_t));
    signals = Signals::reserve(layout, num_flags, num_ranks);
    world = std::make_unique<World>(layout, num_ranks, ranks, port);
  }
  void run(const SignalOptions& options, const std::function<void(Rank, Signals&)>& body) {
    run_ranks(*world, [&](Rank rank) {
      Signals own(rank, signals, num_flags, options);
      body(rank, own);
    });
  }
  void put(Rank rank, int peer, int flag, std::int64_t value) const {
    rank.put(peer, payload, static_cast<std::size_t>(rank.rank() * num_flags + flag) * sizeof(value),
             std::as_bytes(std::span(&value, 1)));
  }
  std::int64_t received(Rank rank, int source, int flag) const {
    return rank.local_as<std::int64_t>(payload)[static_cast<std::size_t>(source * num_flags + flag)];
  }

  int num_flags;
  Layout layout;
  RegionId payload{}, signals{};
  std::unique_ptr<World> world;
};

}  // namespace xs
