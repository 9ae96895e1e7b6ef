#include <gtest/gtest.h>

#include <functional>

#include "xstage/explore/explorer.hpp"

// The asynchronous proxy: what a bulk copy reads, when its write counts, and which fence is owed to it.

namespace xs::explore {
namespace {

using enum Ordering;
using Outcomes = std::set<std::vector<Value>>;

const Outcomes kRight{{1}};
const Outcomes kEither{{0}, {1}};

using Part = std::function<void(Thread&)>;
const Part kNothing = [](Thread&) {};
const Part kProxyFence = [](Thread& thread) { thread.proxy_fence(); };

// Data goes through staging and a bulk store to a peer, whose flag is raised.
Outcomes publish(const Part& before_copy, const Part& after_copy, Ordering raise = release) {
  Program program;
  const Place staging = program.shared_place("staging");
  const Place data = program.place("data"), flag = program.place("flag");
  auto writer = program.thread("writer"), reader = program.thread("reader");
  writer.store(staging, 1);
  before_copy(writer);
  writer.bulk_store(staging, data);
  after_copy(writer);
  writer.store(flag, 1, raise);
  reader.wait(flag, 1);
  reader.load(data);
  return explore(program).outcomes;
}

const Part kWaitGroup = [](Thread& thread) { thread.wait_group(); };
const Part kWaitGroupRead = [](Thread& thread) { thread.wait_group_read(); };

TEST(BulkStore, IsPublishedAfterWaitGroupAndRelease) {
  EXPECT_EQ(publish(kProxyFence, kWaitGroup), kRight);
  EXPECT_EQ(publish(kProxyFence, kNothing), kEither);
  EXPECT_EQ(publish(kProxyFence, kWaitGroupRead), kEither);
  EXPECT_EQ(publish(kProxyFence, kWaitGroup, relaxed), kEither);
  const Part fence_after = [](Thread& thread) {
    thread.wait_group();
    thread.fence();
  };
  EXPECT_EQ(publish(kProxyFence, fence_after, relaxed), kRight);
  const Part proxy_fence_after = [](Thread& thread) { thread.proxy_fence(); };
  EXPECT_EQ(publish(kProxyFence, proxy_fence_after), kEither);  // it does not wait for the copy
}

TEST(BulkStore, ReadsOldDataWithoutAProxyFence) {
  EXPECT_EQ(publish(kNothing, kWaitGroup), kEither);
  // A fence of the generic proxy is none.
  EXPECT_EQ(publish([](Thread& thread) { thread.fence(); }, kWaitGroup), kEither);
  // It covers what stands before it.
  Program program;
  const Place staging = program.shared_place("staging"), data = program.place("data");
  auto warp = program.thread("warp");
  warp.proxy_fence();
  warp.store(staging, 1);
  warp.bulk_store(staging, data);
  warp.wait_group();
  warp.load(data);
  EXPECT_EQ(explore(program).outcomes, kEither);
}

// Stronger than the device, which promises this of a proxy fence alone: what is performed is visible to both proxies.
TEST(BulkStore, SeesWhatAFullFenceCovers) {
  const Part full_fence = [](Thread& thread) { thread.full_fence(); };
  EXPECT_EQ(publish(full_fence, kWaitGroup), kRight);
  EXPECT_EQ(publish(kProxyFence, full_fence), kEither);  // it does not wait for the copy
}

TEST(BulkStore, WaitGroupReadFreesTheSourceAlone) {
  const auto run = [](const Part& wait) {
    Program program;
    const Place staging = program.shared_place("staging", 1), data = program.place("data");
    auto warp = program.thread("warp");
    warp.bulk_store(staging, data);
    wait(warp);
    warp.store(staging, 2);
    warp.load(data);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(kNothing), (Outcomes{{0}, {1}, {2}}));
  EXPECT_EQ(run(kWaitGroupRead), (Outcomes{{0}, {1}}));
  EXPECT_EQ(run(kWaitGroup), (Outcomes{{1}}));
}

TEST(BulkStore, WaitGroupReadOrdersTheNextTensorLoadToo) {
  const auto run = [](const Part& wait) {
    Program program;
    const Place staging = program.shared_place("staging", 1), full = program.shared_place("full");
    const Place next = program.place("next", 2), data = program.place("data");
    auto warp = program.thread("warp");
    warp.bulk_store(staging, data);
    wait(warp);
    warp.tensor_load(next, staging, full);
    warp.wait_group();
    warp.load(data);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(kNothing), (Outcomes{{1}, {2}}));
  EXPECT_EQ(run(kWaitGroupRead), kRight);
}

TEST(BulkStore, OfAFlagAcquiresNothing) {
  Program program;
  const Place data = program.place("data"), flag = program.place("flag"), copy = program.place("copy");
  auto writer = program.thread("writer"), reader = program.thread("reader");
  writer.store(data, 1);
  writer.store(flag, 1, release);
  reader.bulk_store(flag, copy);
  reader.wait_group();
  reader.fence();
  reader.load(copy, acquire);
  reader.load(data);
  EXPECT_TRUE(explore(program).outcomes.contains({1, 0}));
}

TEST(BulkStore, TwoOfThemAreUnordered) {
  Program program;
  const Place a = program.shared_place("a", 1), b = program.shared_place("b", 2), data = program.place("data");
  auto warp = program.thread("warp");
  warp.bulk_store(a, data);
  warp.bulk_store(b, data);
  warp.wait_group();
  warp.load(data);
  EXPECT_EQ(explore(program).outcomes, (Outcomes{{1}, {2}}));
}

// Another warp writes the staging buffer; the fence may stand at either end of the barrier, as long as it is between
// the write and the bulk store.
TEST(ProxyFence, StandsAnywhereOnTheWay) {
  const auto run = [](const Part& writer_fence, const Part& issuer_fence) {
    Program program;
    const Place staging = program.shared_place("staging"), staged = program.shared_place("staged");
    const Place data = program.place("data");
    auto writer = program.thread("writer"), issuer = program.thread("issuer");
    writer.store(staging, 1);
    writer_fence(writer);
    writer.add(staged, 1);
    issuer.wait(staged, 1);
    issuer_fence(issuer);
    issuer.bulk_store(staging, data);
    issuer.wait_group();
    issuer.load(data);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(kProxyFence, kNothing), kRight);
  EXPECT_EQ(run(kNothing, kProxyFence), kRight);
  EXPECT_EQ(run(kNothing, kNothing), kEither);
}

TEST(ProxyFence, OfEveryWriterIsHandedOnByOneBarrier) {
  const auto run = [](const Part& first_fence) {
    Program program;
    const Place staging[] = {program.shared_place("staging[0]"), program.shared_place("staging[1]")};
    const Place staged = program.shared_place("staged");
    const Place data[] = {program.place("data[0]"), program.place("data[1]")};
    for (const std::size_t i : {0, 1}) {
      auto writer = program.thread("writer");
      writer.store(staging[i], 1);
      if (i == 0) first_fence(writer);
      if (i == 1) writer.proxy_fence();
      writer.add(staged, 1);
    }
    auto issuer = program.thread("issuer");
    issuer.wait(staged, 2);
    for (const std::size_t i : {0, 1}) issuer.bulk_store(staging[i], data[i]);
    issuer.wait_group();
    for (const Place word : data) issuer.load(word);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(kProxyFence), (Outcomes{{1, 1}}));
  EXPECT_EQ(run(kNothing), (Outcomes{{0, 1}, {1, 1}}));
}

TEST(TensorLoad, OfReceivedDataNeedsAcquireAndProxyFence) {
  const auto run = [](Ordering look, const Part& fence) {
    Program program;
    const Place data = program.place("data"), flag = program.place("flag");
    const Place stage = program.shared_place("stage"), full = program.shared_place("full");
    auto sender = program.thread("sender"), loader = program.thread("loader"), reader = program.thread("reader");
    sender.store(data, 1);
    sender.store(flag, 1, release);
    loader.wait(flag, 1, look);
    fence(loader);
    loader.tensor_load(data, stage, full);
    reader.wait(full, 1);
    reader.load(stage);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(acquire, kProxyFence), kRight);
  EXPECT_EQ(run(acquire, kNothing), kEither);
  EXPECT_EQ(run(relaxed, kProxyFence), kEither);
}

TEST(TensorLoad, IsCompleteAtItsBarrierAndNotAtWaitGroup) {
  const auto run = [](const std::function<void(Thread&, Place full)>& wait) {
    Program program;
    const Place data = program.place("data", 1);
    const Place stage = program.shared_place("stage"), full = program.shared_place("full");
    auto thread = program.thread("thread");
    thread.tensor_load(data, stage, full);
    wait(thread, full);
    thread.load(stage);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run([](Thread& thread, Place full) { thread.wait(full, 1); }), kRight);
  EXPECT_EQ(run([](Thread& thread, Place full) { thread.wait(full, 1, relaxed); }), kEither);
  EXPECT_EQ(run([](Thread& thread, Place) { thread.wait_group(); }), kEither);
}

TEST(TensorLoad, OvertakesGenericReadsWithoutAProxyFence) {
  const auto run = [](const Part& fence, Ordering freed) {
    Program program;
    const Place data = program.place("data", 1);
    const Place stage = program.shared_place("stage"), full = program.shared_place("full");
    const Place empty = program.shared_place("empty");
    auto reader = program.thread("reader"), loader = program.thread("loader");
    reader.load(stage);
    fence(reader);
    reader.add(empty, 1, freed);
    loader.wait(empty, 1);
    loader.tensor_load(data, stage, full);
    return explore(program).outcomes;
  };
  EXPECT_EQ(run(kProxyFence, release), (Outcomes{{0}}));
  EXPECT_EQ(run(kNothing, release), kEither);
  EXPECT_EQ(run(kProxyFence, relaxed), kEither);
}

}  // namespace
}  // namespace xs::explore
