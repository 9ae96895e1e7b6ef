#include <array>

#include "xstage/explore/protocols.hpp"

// Data moves by stores of the generic proxy.

namespace xs::explore {
namespace {

using enum Ordering;
using enum FaultKind;

// The word of a flag at the begin of an epoch.
constexpr Value armed(std::uint32_t epoch) { return Value{epoch} << 32; }

// Two warps write a tile, one of them publishes it; on the other side one warp looks at the flag for two.
Program publish(std::string_view mutant) {
  Program program;
  const Place tile[] = {program.place("tile[0]"), program.place("tile[1]")};
  const Place flag = program.place("flag");
  const Place written = program.shared_place("written"), seen = program.shared_place("seen");

  auto warp0 = program.thread("warp 0"), warp1 = program.thread("warp 1");
  if (mutant != "flag before data") warp0.store(tile[0], 1);
  if (mutant != "release before all writers arrived") warp0.wait(written, 1);
  warp0.store(flag, 1, mutant == "relaxed instead of release" ? relaxed : release,
              mutant == "release at GPU scope" ? Scope::gpu : Scope::system);
  if (mutant == "flag before data") warp0.store(tile[0], 1);
  warp1.store(tile[1], 1);
  warp1.add(written, 1);

  auto reader0 = program.thread("reader 0"), reader1 = program.thread("reader 1");
  reader0.wait(flag, 1, mutant == "plain instead of acquire load" ? relaxed : acquire);
  reader0.read(tile[0], 1);
  reader0.add(seen, 1);
  if (mutant != "read before the looking warp arrived") reader1.wait(seen, 1);
  reader1.read(tile[1], 1);
  return program;
}

// dispatch → Linear-1 → Linear-2: the last reads what the first wrote, though it waited for the second alone.
Program chain(std::string_view mutant) {
  Program program;
  const Place rows = program.place("rows"), origins = program.place("origins");
  const Place activations = program.place("activations");
  const Place arrived = program.place("arrived"), activated = program.place("activated");

  auto dispatch = program.thread("dispatch");
  dispatch.store(rows, 1);
  dispatch.store(origins, 1);
  dispatch.add(arrived, 1);

  auto linear1 = program.thread("linear1");
  linear1.wait(arrived, 1, mutant == "plain load in the middle" ? relaxed : acquire);
  if (mutant != "plain load in the middle") linear1.read(rows, 1);
  linear1.store(activations, 1);
  linear1.add(activated, 1, mutant == "relaxed raise in the middle" ? relaxed : release);

  auto linear2 = program.thread("linear2");
  linear2.wait(activated, 1);
  linear2.read(activations, 1);
  linear2.read(origins, 1);
  return program;
}

// One flag, one tile an epoch in two buffers; the raiser may be an epoch ahead, and the epoch wraps between the two.
Program epochs(std::string_view mutant) {
  constexpr std::uint32_t kEpochs[] = {0xffffffff, 0};
  Program program;
  const Place tile[] = {program.place("tile[0]"), program.place("tile[1]")};
  const Place flag = program.place("flag", armed(0xfffffffe));
  const Until until = mutant == "equality instead of >=" ? Until::equals
                      : mutant == "unsigned comparison"  ? Until::reaches_unsigned
                                                         : Until::reaches;
  auto raiser = program.thread("raiser"), waiter = program.thread("waiter");
  for (const std::size_t i : {0, 1}) {
    raiser.store(tile[i], 1);
    raiser.store(flag, armed(kEpochs[i]), release);
    waiter.wait(flag, armed(kEpochs[i]), acquire, until);
    waiter.read(tile[i], 1);
  }
  return program;
}

// Signals: a counter in two banks by parity of the epoch, the idle one re-armed by its owner after the closing barrier.
// Three epochs, so that the first bank comes back. The owner's worker waits and reads, its closer ends each epoch.
Program banks(std::string_view mutant) {
  constexpr std::uint32_t kEpochs[] = {1, 2, 3};
  const bool one_bank = mutant == "one bank";
  const bool early = mutant == "re-armed before the closing barrier";
  const bool late = mutant == "re-armed one closing barrier late";
  Program program;
  const Place tile = program.place("tile");
  const Place bank[] = {program.place("bank[0]"), program.place("bank[1]")};
  const Place done = program.place("done");  // the worker has no wait left in the epoch
  const Place owner_arrived = program.place("owner's arrival"), peer_arrived = program.place("peer's arrival");
  const auto bank_of = [&](std::uint32_t epoch) { return bank[one_bank ? 0 : epoch % 2]; };

  auto worker = program.thread("worker");
  for (const std::uint32_t epoch : {1, 2}) {
    // By adding, because the peer may have raised already.
    if (mutant == "flag zeroed locally after a peer raised it") {
      worker.store(bank_of(epoch), armed(epoch), release);
    } else if (!one_bank || epoch == 1) {
      worker.add(bank_of(epoch), armed(epoch));
    }
  }
  for (const auto epoch : kEpochs) {
    worker.wait(bank_of(epoch), armed(epoch) + 1);
    worker.read(tile, epoch);
    worker.add(done, 1);
  }

  auto closer = program.thread("closer");
  const auto rearm = [&](std::uint32_t closed) {
    closer.store(bank_of(closed), armed(closed + (one_bank ? 1 : 2)), release);
  };
  for (const auto epoch : kEpochs) {
    if (early) rearm(epoch);
    closer.wait(done, epoch);
    closer.add(owner_arrived, 1, mutant == "relaxed arrival at the closing barrier" ? relaxed : release);
    closer.wait(peer_arrived, epoch);
    if (late && epoch > 1) rearm(epoch - 1);
    if (!early && !late) rearm(epoch);
  }

  auto peer = program.thread("peer");
  for (const auto epoch : kEpochs) {
    peer.store(tile, epoch);
    peer.add(bank_of(epoch), 1);
    peer.add(peer_arrived, 1);
    peer.wait(owner_arrived, epoch);
  }
  return program;
}

// Chunks that different warps send become visible in any order.
Program chunks(std::string_view mutant) {
  Program program;
  const bool cumulative = mutant == "one cumulative counter for out-of-order chunks";
  const Place chunk[] = {program.place("chunk[0]"), program.place("chunk[1]")};
  const Place counter = program.place("counter");
  const Place flag[] = {program.place("flag[0]"), program.place("flag[1]")};
  auto reader = program.thread("reader");
  for (const std::size_t i : {0, 1}) {
    auto warp = program.thread(i == 0 ? "warp 0" : "warp 1");
    warp.store(chunk[i], 1);
    warp.add(cumulative ? counter : flag[i], 1);
    reader.wait(cumulative ? counter : flag[i], cumulative ? i + 1 : 1);
    reader.read(chunk[i], 1);
  }
  return program;
}

// A ring of two slots: before the third tile the producer waits until the first slot is free.
Program ring(std::string_view mutant) {
  constexpr std::size_t kNumSlots = 2, kNumTiles = 3;
  Program program;
  const Place slot[] = {program.place("slot[0]"), program.place("slot[1]")};
  const Place filled = program.place("filled"), freed = program.place("freed");
  auto producer = program.thread("producer"), consumer = program.thread("consumer");
  for (std::size_t tile = 0; tile < kNumTiles; ++tile) {
    if (tile >= kNumSlots && mutant != "buffer reused before read") {
      producer.wait(freed, tile - kNumSlots + 1,
                    mutant == "plain instead of acquire load of freed" ? relaxed : acquire);
    }
    producer.store(slot[tile % kNumSlots], tile + 1);
    producer.add(filled, 1);

    const auto free = [&] { consumer.add(freed, 1, mutant == "slot freed by a relaxed add" ? relaxed : release); };
    consumer.wait(filled, tile + 1);
    if (mutant == "slot freed before it is read") free();
    consumer.read(slot[tile % kNumSlots], tile + 1);
    if (mutant != "slot freed before it is read") free();
  }
  return program;
}

// A waiter that sleeps: either the ringer sees the sleeper and wakes it, or the sleeper sees the ring and stays awake.
Program doorbell(std::string_view mutant) {
  const bool sequential = mutant != "release and acquire instead of sequentially consistent";
  Program program;
  const Place flag = program.place("flag"), rings = program.place("rings"), sleepers = program.place("sleepers");
  const Place woken = program.place("woken");

  auto ringer = program.thread("ringer");
  ringer.add(flag, 1);
  ringer.add(rings, 1);
  if (sequential) ringer.full_fence();
  const auto asleep = ringer.load(sleepers, acquire);
  ringer.when(asleep, 1).store(woken, 1);

  auto sleeper = program.thread("sleeper");
  sleeper.add(sleepers, 1);
  if (sequential) sleeper.full_fence();
  const auto rung = sleeper.load(rings, acquire);
  const auto raised = sleeper.when(rung, 0).load(flag, acquire);
  // The kernel looks at the doorbell once more before it lets the thread sleep.
  const auto still = sleeper.when(raised, 0).load(rings, acquire);
  sleeper.when(still, 0).wait(woken, 1);
  return program;
}

}  // namespace

std::vector<Protocol> store_protocols() {
  return {
      {"publish",
       publish,
       {{"release before all writers arrived", stale_read, "tile[1]"},
        {"flag before data", stale_read, "tile[0]"},
        {"plain instead of acquire load", stale_read, "tile[0]"},
        {"relaxed instead of release", stale_read, "tile[0]"},
        {"release at GPU scope", stale_read, "tile[0]"},
        {"read before the looking warp arrived", stale_read, "tile[1]"}}},
      {"chain",
       chain,
       {{"plain load in the middle", stale_read, "origins"},
        {"relaxed raise in the middle", stale_read, "activations"}}},
      {"epochs", epochs, {{"equality instead of >=", deadlock, "flag"}, {"unsigned comparison", deadlock, "flag"}}},
      {"banks",
       banks,
       {{"flag zeroed locally after a peer raised it", deadlock, "bank[1]"},
        {"re-armed before the closing barrier", stale_read, "tile"},
        {"re-armed one closing barrier late", deadlock, "bank[1]"},
        {"relaxed arrival at the closing barrier", overwritten_read, "tile"},
        {"one bank", deadlock, "bank[0]"}}},
      {"chunks", chunks, {{"one cumulative counter for out-of-order chunks", stale_read, "chunk[0]"}}},
      {"ring",
       ring,
       {{"buffer reused before read", overwritten_read, "slot[0]"},
        {"slot freed before it is read", overwritten_read, "slot[0]"},
        {"slot freed by a relaxed add", overwritten_read, "slot[0]"},
        {"plain instead of acquire load of freed", overwritten_read, "slot[0]"}}},
      {"doorbell", doorbell, {{"release and acquire instead of sequentially consistent", deadlock, "woken"}}},
  };
}

}  // namespace xs::explore
