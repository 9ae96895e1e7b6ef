#include "xstage/tile/pacer.hpp"

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

constexpr BucketRates kShare{{40}, {6}, {30000}};  // bytes per ns, bytes

// A worker that does something else, asks, and begins somewhat later than it may.
struct Worker {
  Pacer pacer{kShare, Nanos{0}};
  Nanos now{0};
  Bytes stored{0};

  void burst(Bytes bytes, Nanos other, Nanos late) {
    now += other;
    now += pacer.wait(bytes, now) + late;
    pacer.begin(bytes, now);
    stored += bytes;
  }
};

TEST(Pacer, NeverExceedsItsShare) {
  Dice dice(1);
  for (int run = 0; run < 50; ++run) {
    Worker worker;
    double outstanding = 0;  // by its own account: what was stored less what has drained since
    Nanos at{0};
    for (int i = 0; i < 500; ++i) {
      const Bytes bytes{static_cast<double>(dice.whole(1, 30000))};
      worker.burst(bytes, Nanos{dice.between(0, 8000)}, Nanos{dice.between(0, 300)});
      outstanding = std::max(0.0, outstanding - 6 * (worker.now - at).value) + bytes.value;
      at = worker.now;
      ASSERT_LE(outstanding, kShare.capacity.value * (1 + 1e-9));
      ASSERT_NEAR(outstanding, worker.pacer.outstanding(worker.now).value, 1e-6);
    }
    EXPECT_LE(worker.stored.value, 6 * worker.now.value + kShare.capacity.value * (1 + 1e-9));
  }
}

// Lateness costs nothing while the share holds enough to bridge it.
TEST(Pacer, StoresAtTheDrainInTheLongRun) {
  Dice dice(2);
  for (const double late : {0.0, 500.0, 2000.0}) {
    Worker worker;
    for (int i = 0; i < 10000; ++i) worker.burst(Bytes{8192}, Nanos{0}, Nanos{dice.between(0, late)});
    EXPECT_NEAR(worker.stored / worker.now / kShare.drain, 1, 0.001) << late;
  }
}

TEST(Pacer, HoldsBackNobodyWhoStaysBelowItsShare) {
  Worker worker;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(worker.pacer.wait(Bytes{6000}, worker.now), Nanos{0});
    worker.burst(Bytes{6000}, Nanos{1001}, Nanos{0});
  }
}

TEST(Pacer, LetsAFullShareGoAtOnceAfterAPause) {
  Worker worker;
  worker.burst(Bytes{30000}, Nanos{0}, Nanos{0});
  EXPECT_EQ(worker.now, Nanos{0});
  EXPECT_EQ(worker.pacer.wait(Bytes{30000}, Nanos{1000}), Nanos{4000});
  EXPECT_EQ(worker.pacer.wait(Bytes{6000}, Nanos{1000}), Nanos{0});
  EXPECT_EQ(worker.pacer.wait(Bytes{30000}, Nanos{5000}), Nanos{0});
}

TEST(Pacer, ABurstThatNoShareHoldsWaitsUntilNothingIsOutstanding) {
  Worker worker;
  worker.burst(Bytes{12000}, Nanos{0}, Nanos{0});
  EXPECT_EQ(worker.pacer.wait(Bytes{1e6}, Nanos{0}), Nanos{2000});
}

TEST(Pacer, SharesAddUpToTheirPartOfThePort) {
  for (const int workers : {1, 7, 132}) {
    const auto share = even_share(kShare, workers, 0.9);
    EXPECT_NEAR((share.drain * workers).value, 0.9 * 6, 1e-12);
    EXPECT_NEAR((share.capacity * workers).value, 0.9 * 30000, 1e-8);
  }
}

}  // namespace
}  // namespace xs
