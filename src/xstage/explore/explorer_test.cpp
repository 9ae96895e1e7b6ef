#include "xstage/explore/explorer.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs::explore {
namespace {

TEST(Explorer, TooManyStatesAreAnErrorAndNeverCutOff) {
  Program program;
  for (int thread = 0; thread < 4; ++thread) {
    auto writer = program.thread("writer");
    for (int i = 0; i < 3; ++i) writer.store(program.place("place"), 1);
  }
  const auto all = explore(program);
  EXPECT_EQ(all.num_states, 4096u);  // any subset of twelve stores
  EXPECT_EQ(explore(program, 4096).num_states, 4096u);
  expect_usage_error([&] { explore(program, 4095); }, {"more than 4095 states"});
}

TEST(Explorer, AProgramOfTooManyInstructionsIsRefused) {
  Program program;
  const Place place = program.place("place");
  auto thread = program.thread("thread");
  for (int i = 0; i < 64; ++i) thread.store(place, 1);
  EXPECT_EQ(explore(program).num_states, 65u);
  expect_usage_error([&] { thread.store(place, 1); }, {"at most 64 instructions"});
}

TEST(Explorer, ADeadlockNamesEveryoneWhoWaits) {
  Program program;
  const Place ping = program.place("ping"), pong = program.place("pong");
  auto a = program.thread("a"), b = program.thread("b"), c = program.thread("c");
  a.wait(ping, 1);
  a.add(pong, 1);
  b.wait(pong, 1);
  b.add(ping, 1);
  c.add(ping, 1, Ordering::relaxed);
  EXPECT_FALSE(explore(program).fault.has_value());
  a.wait(pong, 3);
  const auto fault = explore(program).fault;
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::deadlock);
  EXPECT_EQ(fault->place, "pong");
  EXPECT_EQ(fault->text, "nothing can go on; \"a: wait pong >= 3 (acquire)\" sees 1");
  EXPECT_EQ(fault->steps.size(), 5u);
}

// A value that a load saw early counts only when the waits before it are over.
TEST(Explorer, AReadCountsOnlyAfterTheWaitsBeforeIt) {
  Program program;
  const Place data = program.place("data"), flag = program.place("flag");
  auto reader = program.thread("reader");
  reader.wait(flag, 1, Ordering::relaxed);
  reader.read(data, 1);
  auto fault = explore(program).fault;
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::deadlock);

  auto writer = program.thread("writer");
  writer.store(data, 1);
  writer.store(flag, 1, Ordering::release);
  fault = explore(program).fault;
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::stale_read);
  EXPECT_EQ(fault->steps.front(), "reader: read data, sees 0, overtaking \"reader: wait flag >= 1 (relaxed)\"");
  EXPECT_EQ(fault->steps.back(), "reader: wait flag >= 1 (relaxed), sees 1");
}

TEST(Explorer, BranchesSkipWhatTheyGuard) {
  Program program;
  const Place x = program.place("x"), y = program.place("y");
  program.thread("writer").store(x, 1);
  auto thread = program.thread("thread");
  const auto saw = thread.load(x);
  const auto inner = thread.when(saw, 1).load(y);
  thread.when(inner, 5).wait(y, 7);  // never executed
  thread.when(saw, 0).read(y, 9);    // wrong, if executed
  const auto fault = explore(program).fault;
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::stale_read);
  EXPECT_EQ(fault->steps, (std::vector<std::string>{
                              "thread: read x, sees 0",
                              "thread: read y, not executed",
                              "thread: wait y >= 7 (acquire), not executed",
                              "thread: read y, sees 0",
                          }));
}

TEST(Explorer, WaitsCompareBySignedDifference) {
  const auto passes = [](Value start, Value target, Until until) {
    Program program;
    const Place word = program.place("word", start);
    program.thread("waiter").wait(word, target, Ordering::acquire, until);
    return !explore(program).fault.has_value();
  };
  constexpr Value kLast = Value{0xffffffff} << 32;
  EXPECT_TRUE(passes(0, kLast, Until::reaches));
  EXPECT_FALSE(passes(kLast, 0, Until::reaches));
  EXPECT_FALSE(passes(0, kLast, Until::reaches_unsigned));
  EXPECT_TRUE(passes(kLast, 0, Until::reaches_unsigned));
  EXPECT_TRUE(passes(3, 3, Until::equals));
  EXPECT_FALSE(passes(4, 3, Until::equals));
}

}  // namespace
}  // namespace xs::explore
