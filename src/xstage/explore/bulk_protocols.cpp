#include "xstage/explore/protocols.hpp"

// Data moves by bulk stores and tensor loads, through the asynchronous proxy.

namespace xs::explore {
namespace {

using enum Ordering;
using enum FaultKind;

// Two warps write a tile into staging, one of them stores it to the owner and publishes it.
Program bulk_publish(std::string_view mutant) {
  Program program;
  const Place staging[] = {program.shared_place("staging[0]"), program.shared_place("staging[1]")};
  const Place tile[] = {program.place("tile[0]"), program.place("tile[1]")};
  const Place flag = program.place("flag"), staged = program.shared_place("staged");

  auto warp0 = program.thread("warp 0"), warp1 = program.thread("warp 1");
  warp1.store(staging[1], 1);
  if (mutant != "missing proxy fence before the bulk store") warp1.proxy_fence();
  warp1.add(staged, 1);

  warp0.store(staging[0], 1);
  if (mutant != "missing proxy fence of the issuing warp") warp0.proxy_fence();
  if (mutant != "bulk store before all writers arrived") warp0.wait(staged, 1);
  for (const int i : {0, 1}) warp0.bulk_store(staging[i], tile[i]);
  if (mutant == "wait_group.read only") {
    warp0.wait_group_read();
  } else if (mutant != "no wait_group") {
    warp0.wait_group();
  }
  warp0.store(flag, 1, mutant == "relaxed flag after wait_group" ? relaxed : release);

  auto reader = program.thread("reader");
  reader.wait(flag, 1);
  for (const Place word : tile) reader.read(word, 1);
  return program;
}

// Two tiles through one staging buffer: it may be written again when the bulk store has read it.
Program staging_reuse(std::string_view mutant) {
  Program program;
  const Place staging = program.shared_place("staging"), flag = program.place("flag");
  const Place tile[] = {program.place("tile[0]"), program.place("tile[1]")};
  auto warp = program.thread("warp"), reader = program.thread("reader");
  for (const Value i : {0, 1}) {
    if (i > 0 && mutant != "staging rewritten before it is read") warp.wait_group_read();
    warp.store(staging, i + 1);
    if (i == 0 || mutant != "missing proxy fence after the second write") warp.proxy_fence();
    warp.bulk_store(staging, tile[i]);
  }
  warp.wait_group();
  warp.store(flag, 1, release);
  reader.wait(flag, 1);
  for (const Value i : {0, 1}) reader.read(tile[i], i + 1);
  return program;
}

// Received rows are loaded by the tensor unit; a stage is filled again when its reader has released it.
Program receive(std::string_view mutant) {
  Program program;
  const Place rows[] = {program.place("rows[0]"), program.place("rows[1]")};
  const Place arrived = program.place("arrived");
  const Place stage = program.shared_place("stage");
  const Place full = program.shared_place("full"), empty = program.shared_place("empty");

  auto sender = program.thread("sender"), loader = program.thread("loader"), consumer = program.thread("consumer");
  for (const Value i : {0, 1}) sender.store(rows[i], i + 1);
  sender.add(arrived, 1);

  loader.wait(arrived, 1, mutant == "plain instead of acquire load" ? relaxed : acquire);
  if (mutant != "missing proxy fence after the acquire") loader.proxy_fence();
  for (const Value i : {0, 1}) {
    if (i > 0 && mutant != "stage refilled before it is released") loader.wait(empty, i);
    loader.tensor_load(rows[i], stage, full);

    consumer.wait(full, i + 1, mutant == "plain load of full" ? relaxed : acquire);
    consumer.read(stage, i + 1);
    if (i > 0) break;
    if (mutant != "missing proxy fence before the refill") consumer.proxy_fence();
    consumer.add(empty, 1);
  }
  return program;
}

}  // namespace

std::vector<Protocol> bulk_protocols() {
  return {
      {"bulk publish",
       bulk_publish,
       {{"missing proxy fence before the bulk store", stale_read, "tile[1]"},
        {"missing proxy fence of the issuing warp", stale_read, "tile[0]"},
        {"bulk store before all writers arrived", stale_read, "tile[1]"},
        {"no wait_group", stale_read, "tile[1]"},
        {"wait_group.read only", stale_read, "tile[1]"},
        {"relaxed flag after wait_group", stale_read, "tile[1]"}}},
      {"staging",
       staging_reuse,
       {{"staging rewritten before it is read", overwritten_read, "tile[0]"},
        {"missing proxy fence after the second write", stale_read, "tile[1]"}}},
      {"receive",
       receive,
       {{"missing proxy fence after the acquire", stale_read, "stage"},
        {"plain instead of acquire load", stale_read, "stage"},
        {"missing proxy fence before the refill", overwritten_read, "stage"},
        {"stage refilled before it is released", overwritten_read, "stage"},
        {"plain load of full", stale_read, "stage"}}},
  };
}

}  // namespace xs::explore
