#include <gtest/gtest.h>

#include <functional>

#include "xstage/core/test_support.hpp"
#include "xstage/explore/explorer.hpp"

// The memory model, held against the litmus tests of the literature: which outcomes it must show and which it must not.

namespace xs::explore {
namespace {

using enum Ordering;
using Outcome = std::vector<Value>;
using Outcomes = std::set<Outcome>;

// What the loads of a program over x and y can see together.
Outcomes outcomes(const std::function<void(Program&, Place x, Place y)>& write) {
  Program program;
  const Place x = program.place("x"), y = program.place("y");
  write(program, x, y);
  const auto exploration = explore(program);
  EXPECT_FALSE(exploration.fault.has_value()) << exploration.fault->text;
  return exploration.outcomes;
}

// --- message passing: x is data, y its flag; the outcome is (flag, data) ---------------------------------

Outcomes pass_message(
    Ordering raise, Ordering look, std::function<void(Thread&)> writer_fence = [](Thread&) {},
    std::function<void(Thread&)> reader_fence = [](Thread&) {}) {
  return outcomes([&](Program& program, Place x, Place y) {
    auto writer = program.thread("writer");
    writer.store(x, 1);
    writer_fence(writer);
    writer.store(y, 1, raise);
    auto reader = program.thread("reader");
    reader.load(y, look);
    reader_fence(reader);
    reader.load(x);
  });
}

const Outcomes kStrong{{0, 0}, {0, 1}, {1, 1}};
const Outcomes kWeak{{0, 0}, {0, 1}, {1, 0}, {1, 1}};

TEST(MessagePassing, NeedsBothReleaseAndAcquire) {
  EXPECT_EQ(pass_message(relaxed, relaxed), kWeak);
  EXPECT_EQ(pass_message(release, relaxed), kWeak);
  EXPECT_EQ(pass_message(relaxed, acquire), kWeak);
  EXPECT_EQ(pass_message(release, acquire), kStrong);
}

TEST(MessagePassing, FencesDoAsWell) {
  const auto fence = [](Thread& thread) { thread.fence(); };
  const auto full_fence = [](Thread& thread) { thread.full_fence(); };
  EXPECT_EQ(pass_message(relaxed, relaxed, fence), kWeak);
  EXPECT_EQ(pass_message(relaxed, relaxed, full_fence), kWeak);  // the load is satisfied early
  EXPECT_EQ(pass_message(relaxed, acquire, fence), kStrong);
  EXPECT_EQ(pass_message(
                release, relaxed, [](Thread&) {}, fence),
            kStrong);
  EXPECT_EQ(pass_message(relaxed, relaxed, fence, fence), kStrong);
  EXPECT_EQ(pass_message(relaxed, relaxed, full_fence, full_fence), kStrong);
}

TEST(MessagePassing, AFenceOnTheWrongSideOrdersNothing) {
  const auto pass = [](bool fence_first, Ordering raise, Ordering look) {
    return outcomes([&](Program& program, Place x, Place y) {
      auto writer = program.thread("writer"), reader = program.thread("reader");
      if (fence_first) writer.fence();
      writer.store(x, 1);
      writer.store(y, 1, raise);
      writer.fence();
      reader.fence();
      reader.load(y, look);
      reader.load(x);
      reader.fence();
    });
  };
  EXPECT_EQ(pass(true, relaxed, acquire), kWeak);
  EXPECT_EQ(pass(false, release, relaxed), kWeak);
  EXPECT_EQ(pass(false, release, acquire), kStrong);
}

TEST(MessagePassing, ScopesMustReachTheReader) {
  const auto pass = [](Scope scope, Place (Program::*place)(std::string, Value)) {
    Program program;
    const Place data = (program.*place)("data", 0), flag = (program.*place)("flag", 0);
    auto writer = program.thread("writer");
    writer.store(data, 1);
    writer.store(flag, 1, release, scope);
    auto reader = program.thread("reader");
    reader.load(flag, acquire);
    reader.load(data);
    return explore(program).outcomes;
  };
  EXPECT_EQ(pass(Scope::cta, &Program::place), kWeak);
  EXPECT_EQ(pass(Scope::gpu, &Program::place), kWeak);
  EXPECT_EQ(pass(Scope::system, &Program::place), kStrong);
  EXPECT_EQ(pass(Scope::cta, &Program::shared_place), kStrong);
  const auto narrow = [](Thread& thread) { thread.fence(Scope::gpu); };
  EXPECT_EQ(pass_message(relaxed, relaxed, narrow, narrow), kWeak);
}

// A first-in-first-out store buffer would show (1, 0) of two data words, never (0, 1).
TEST(MessagePassing, StoresBecomeVisibleInAnyOrder) {
  const auto pass = [](Ordering look) {
    return outcomes([&](Program& program, Place x, Place y) {
      const Place flag = program.place("flag");
      auto writer = program.thread("writer");
      writer.store(x, 1);
      writer.store(y, 1);
      writer.store(flag, 1);
      auto reader = program.thread("reader");
      reader.wait(flag, 1, look);
      reader.load(x);
      reader.load(y);
    });
  };
  EXPECT_EQ(pass(acquire), kWeak);
  EXPECT_EQ(pass(relaxed), kWeak);
}

TEST(MessagePassing, AReleaseSequenceOfAdditionsHandsOnAllOfThem) {
  const auto pass = [](Ordering second) {
    return outcomes([&](Program& program, Place x, Place y) {
      const Place counter = program.place("counter");
      auto a = program.thread("a"), b = program.thread("b"), reader = program.thread("reader");
      a.store(x, 1);
      a.add(counter, 1);
      b.store(y, 1);
      b.add(counter, 1, second);
      reader.wait(counter, 2);
      reader.load(x);
      reader.load(y);
    });
  };
  EXPECT_EQ(pass(release), (Outcomes{{1, 1}}));
  EXPECT_EQ(pass(relaxed), (Outcomes{{1, 0}, {1, 1}}));
}

TEST(MessagePassing, AnotherStoreToTheFlagHandsOnNothing) {
  const auto exploration = [](Ordering look, Ordering again) {
    return outcomes([&](Program& program, Place x, Place y) {
      auto writer = program.thread("writer"), other = program.thread("other"), reader = program.thread("reader");
      writer.store(x, 1);
      writer.store(y, 1, release);
      other.wait(y, 1, look);
      other.store(y, 2, again);
      reader.wait(y, 2);
      reader.load(x);
    });
  };
  EXPECT_EQ(exploration(relaxed, relaxed), (Outcomes{{0}, {1}}));
  EXPECT_EQ(exploration(acquire, release), (Outcomes{{1}}));
}

// --- two threads, each stores and loads -------------------------------------------------------------------

TEST(StoreBuffering, OnlyFullFencesForbidIt) {
  const auto run = [](Ordering store, Ordering load, std::function<void(Thread&)> fence) {
    return outcomes([&](Program& program, Place x, Place y) {
      for (const auto& [mine, other] : {std::pair{x, y}, {y, x}}) {
        auto thread = program.thread("thread");
        thread.store(mine, 1, store);
        fence(thread);
        thread.load(other, load);
      }
    });
  };
  EXPECT_EQ(run(relaxed, relaxed, [](Thread&) {}), kWeak);
  EXPECT_EQ(run(release, acquire, [](Thread&) {}), kWeak);
  EXPECT_EQ(run(release, acquire, [](Thread& thread) { thread.fence(); }), kWeak);
  EXPECT_EQ(run(relaxed, relaxed, [](Thread& thread) { thread.full_fence(); }), (Outcomes{{0, 1}, {1, 0}, {1, 1}}));
}

TEST(LoadBuffering, NeedsRelaxedLoads) {
  const auto run = [](Ordering load, Ordering store) {
    return outcomes([&](Program& program, Place x, Place y) {
      for (const auto& [mine, other] : {std::pair{x, y}, {y, x}}) {
        auto thread = program.thread("thread");
        thread.load(other, load);
        thread.store(mine, 1, store);
      }
    });
  };
  const Outcomes strong{{0, 0}, {0, 1}, {1, 0}};
  EXPECT_EQ(run(relaxed, relaxed), kWeak);
  EXPECT_EQ(run(acquire, relaxed), strong);
  EXPECT_EQ(run(acquire, release), strong);
}

TEST(LoadBuffering, NothingComesOutOfThinAir) {
  const auto exploration = [](auto&& body) {
    Program program;
    const Place x = program.place("x"), y = program.place("y");
    for (const auto& [mine, other] : {std::pair{x, y}, {y, x}}) {
      auto thread = program.thread("thread");
      body(thread, mine, other);
    }
    return explore(program);
  };
  // A branch on what was loaded.
  EXPECT_EQ(exploration([](Thread& thread, Place mine, Place other) {
              const auto saw = thread.load(other);
              thread.when(saw, 1).store(mine, 1);
            }).outcomes,
            (Outcomes{{0, 0}}));
  // A wait.
  const auto waits = exploration([](Thread& thread, Place mine, Place other) {
    thread.wait(other, 1, relaxed);
    thread.store(mine, 1);
  });
  ASSERT_TRUE(waits.fault.has_value());
  EXPECT_EQ(waits.fault->kind, FaultKind::deadlock);
}

// --- one place -------------------------------------------------------------------------------------------

TEST(Coherence, OfOnePlace) {
  // Two loads never go back.
  EXPECT_EQ(outcomes([](Program& program, Place x, Place) {
              program.thread("writer").store(x, 1);
              auto reader = program.thread("reader");
              reader.load(x);
              reader.load(x);
            }),
            (Outcomes{{0, 0}, {0, 1}, {1, 1}}));
  // Stores of one thread stay in order, and it sees them.
  EXPECT_EQ(outcomes([](Program& program, Place x, Place) {
              auto writer = program.thread("writer");
              writer.store(x, 1);
              writer.store(x, 2);
              writer.load(x);
              auto reader = program.thread("reader");
              reader.wait(x, 2, relaxed);
              reader.load(x);
            }),
            (Outcomes{{2, 2}}));
  // A load does not see a store that stands behind it.
  EXPECT_EQ(outcomes([](Program& program, Place x, Place) {
              auto thread = program.thread("thread");
              thread.load(x);
              thread.store(x, 1);
            }),
            (Outcomes{{0}}));
}

TEST(Coherence, OfLoadsThatAFlagOrders) {
  const auto run = [](Ordering raise) {
    return outcomes([&](Program& program, Place x, Place flag) {
      program.thread("writer").store(x, 1);
      auto first = program.thread("first"), second = program.thread("second");
      first.load(x);
      first.store(flag, 1, raise);
      second.wait(flag, 1);
      second.load(x);
    });
  };
  EXPECT_EQ(run(release), (Outcomes{{0, 0}, {0, 1}, {1, 1}}));
  EXPECT_TRUE(run(relaxed).contains({1, 0}));
}

TEST(Coherence, AdditionsAreAtomic) {
  EXPECT_EQ(outcomes([](Program& program, Place x, Place) {
              for (int i = 0; i < 3; ++i) program.thread("adder").add(x, 1, relaxed);
              auto reader = program.thread("reader");
              reader.wait(x, 3, relaxed);
              reader.load(x);
            }),
            (Outcomes{{3}}));
}

// --- three threads and more ------------------------------------------------------------------------------

TEST(Cumulativity, AChainOfReleasesAndAcquiresHandsOn) {
  const auto run = [](Ordering middle_look, Ordering middle_raise) {
    return outcomes([&](Program& program, Place x, Place y) {
      const Place z = program.place("z");
      auto first = program.thread("first"), middle = program.thread("middle"), last = program.thread("last");
      first.store(x, 1);
      first.store(y, 1, release);
      middle.wait(y, 1, middle_look);
      middle.store(z, 1, middle_raise);
      last.wait(z, 1, acquire);
      last.load(x);
    });
  };
  EXPECT_EQ(run(acquire, release), (Outcomes{{1}}));
  EXPECT_EQ(run(relaxed, release), (Outcomes{{0}, {1}}));
  EXPECT_EQ(run(acquire, relaxed), (Outcomes{{0}, {1}}));
}

TEST(Cumulativity, WhoSawAStoreHandsItOn) {
  const auto run = [](Ordering raise) {
    return outcomes([&](Program& program, Place x, Place y) {
      auto first = program.thread("first"), middle = program.thread("middle"), last = program.thread("last");
      first.store(x, 1);
      middle.load(x, acquire);
      middle.store(y, 1, raise);
      last.load(y, acquire);
      last.load(x);
    });
  };
  const Outcome broken{1, 1, 0};
  EXPECT_FALSE(run(release).contains(broken));
}

// With acquires PTX would still allow it without full fences; here there is one memory.
TEST(IndependentReads, DisagreeUnlessTheyAcquire) {
  const auto run = [](Ordering look) {
    return outcomes([&](Program& program, Place x, Place y) {
      program.thread("writer of x").store(x, 1);
      program.thread("writer of y").store(y, 1);
      for (const auto& [first, second] : {std::pair{x, y}, {y, x}}) {
        auto reader = program.thread("reader");
        reader.load(first, look);
        reader.load(second, look);
      }
    });
  };
  const Outcome disagree{1, 0, 1, 0};
  EXPECT_TRUE(run(relaxed).contains(disagree));
  EXPECT_FALSE(run(acquire).contains(disagree));
}

// A thread block: the flag is released or acquired by one thread, a barrier stands for the others.
TEST(Barrier, MakesOneReleaseCoverAllWriters) {
  const auto run = [](Ordering raise, Ordering look) {
    return outcomes([&](Program& program, Place x, Place flag) {
      const Place arrived = program.shared_place("arrived"), go = program.shared_place("go");
      auto writer = program.thread("writer"), raiser = program.thread("raiser");
      writer.store(x, 1);
      writer.add(arrived, 1);
      raiser.wait(arrived, 1);
      raiser.store(flag, 1, raise);
      auto poller = program.thread("poller"), reader = program.thread("reader");
      poller.wait(flag, 1, look);
      poller.add(go, 1);
      reader.wait(go, 1);
      reader.load(x);
    });
  };
  EXPECT_EQ(run(release, acquire), (Outcomes{{1}}));
  EXPECT_EQ(run(relaxed, acquire), (Outcomes{{0}, {1}}));
  EXPECT_EQ(run(release, relaxed), (Outcomes{{0}, {1}}));
}

// --- what a load holds back ------------------------------------------------------------------------------

TEST(LateLoad, MayRunBehindAStoreUnlessOrdered) {
  const auto run = [](Ordering freed, Ordering look) {
    return outcomes([&](Program& program, Place slot, Place free) {
      auto reader = program.thread("reader"), writer = program.thread("writer");
      reader.load(slot);
      reader.store(free, 1, freed);
      writer.wait(free, 1, look);
      writer.store(slot, 1);
    });
  };
  EXPECT_EQ(run(release, acquire), (Outcomes{{0}}));
  EXPECT_EQ(run(relaxed, acquire), (Outcomes{{0}, {1}}));
  EXPECT_EQ(run(release, relaxed), (Outcomes{{0}, {1}}));
}

TEST(LateStore, MayLandOnALaterAdditionUnlessOrdered) {
  const auto run = [](Ordering done) {
    return outcomes([&](Program& program, Place word, Place flag) {
      const Place added = program.place("added");
      auto owner = program.thread("owner"), peer = program.thread("peer"), reader = program.thread("reader");
      owner.store(word, 10);
      owner.store(flag, 1, done);
      peer.wait(flag, 1);
      peer.add(word, 1);
      peer.store(added, 1, release);
      reader.wait(added, 1);
      reader.wait(word, 10, relaxed);
      reader.load(word);
    });
  };
  EXPECT_EQ(run(release), (Outcomes{{11}}));
  EXPECT_EQ(run(relaxed), (Outcomes{{10}, {11}}));  // 10: the addition is lost
}

}  // namespace
}  // namespace xs::explore
