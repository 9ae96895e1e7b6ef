#include "xstage/mem/host_port.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

using Buffer = std::vector<std::byte>;

Buffer random_bytes(std::uint64_t stream, std::size_t size) {
  const RandomKey key{11, stream};
  Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(key.bits(i) | 1);  // never 0
  return bytes;
}

HostPortOptions make_options(double drain, std::size_t capacity, double latency = 0) {
  HostPortOptions options;
  options.drain = {drain};
  options.capacity = capacity;
  options.visible_latency = {latency};
  return options;
}

Nanos time_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return Nanos{std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count()};
}

// Puts of random sizes by several threads, with calls between them: every call finds what its thread put before, and in
// the end all is there.
void expect_intact(const HostPortOptions& options, int num_threads) {
  constexpr int kPuts = 60;
  constexpr std::size_t kSize = 300000;
  std::vector<Buffer> sources, targets;
  for (int thread = 0; thread < num_threads; ++thread) {
    sources.push_back(random_bytes(static_cast<std::uint64_t>(thread), kSize));
    targets.emplace_back(kSize);
  }
  std::atomic<int> calls = 0, early = 0, out_of_order = 0;
  HostPort port(options);
  const auto send = [&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    Dice dice(index);
    std::size_t end = 0;
    auto last = std::make_shared<int>(-1);
    for (int put = 0; put < kPuts && end < kSize; ++put) {
      const auto size = std::min(kSize - end, static_cast<std::size_t>(dice.over_decades(1, 60000)));
      Buffer source(sources[index].data() + end, sources[index].data() + end + size);
      port.put(std::span(targets[index]).subspan(end, size), source);
      std::ranges::fill(source, std::byte{0});  // it is free
      end += size;
      if (dice.whole(0, 2) > 0) continue;
      port.then([&, last, index, end, put] {
        ++calls;
        if (!std::equal(targets[index].data(), targets[index].data() + end, sources[index].data())) ++early;
        if (*last >= put) ++out_of_order;
        *last = put;
      });
    }
    port.put(std::span(targets[index]).subspan(end), std::span(sources[index]).subspan(end));
    port.flush();
    EXPECT_EQ(targets[index], sources[index]) << "thread " << thread;
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < num_threads; ++thread) threads.emplace_back(send, thread);
  }
  EXPECT_GT(calls, num_threads);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(out_of_order, 0);
}

TEST(HostPort, BytesArriveIntactAndBeforeTheCallsBehindThem) {
  for (const int threads : {1, 2, 5}) {
    for (const std::size_t capacity : {std::size_t{1000}, std::size_t{50000}, std::size_t{1} << 22}) {
      SCOPED_TRACE(fmt::format("{} threads, {} bytes", threads, capacity));
      expect_intact(make_options(5, capacity, 20000), threads);
    }
  }
}

TEST(HostPort, AlsoInShuffledOrder) {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    auto options = make_options(5, std::size_t{1} << 18, 20000);
    options.reorder_seed = seed;
    expect_intact(options, 3);
  }
}

// Bytes overtake each other only with a seed.
TEST(HostPort, ShufflesOnlyWhenAsked) {
  const auto num_overtaken = [](std::optional<std::uint64_t> seed) {
    auto options = make_options(1, 4096, 30e6);  // nothing leaves before all of it has entered
    options.reorder_seed = seed;
    constexpr std::size_t kPuts = 32;
    Buffer target(kPuts);
    // A second thread's calls look at the target between the first one's bytes: a byte that is there while one before
    // it is not has overtaken it.
    std::atomic<int> overtaken = 0;
    HostPort port(options);
    const Buffer one{std::byte{1}};
    for (std::size_t i = 0; i < kPuts; ++i) {
      port.put(std::span(target).subspan(i, 1), one);
      std::jthread([&] {
        port.then([&] {
          if (!std::ranges::is_sorted(target, std::greater<>())) ++overtaken;
        });
      }).join();
    }
    port.flush();
    EXPECT_EQ(std::ranges::count(target, std::byte{1}), static_cast<std::ptrdiff_t>(kPuts));
    return overtaken.load();
  };
  EXPECT_EQ(num_overtaken({}), 0);
  EXPECT_GT(num_overtaken(5), 0);
}

TEST(HostPort, CallsTravelAsLongAsBytes) {
  Buffer target(10000);
  HostPort port(make_options(0.01, 1 << 20, 2e6));
  const auto source = random_bytes(0, target.size());
  EXPECT_GE(time_of([&] { port.flush(); }), Nanos{2e6});
  EXPECT_GE(time_of([&] {
              port.put(target, source);
              port.flush();
            }),
            Nanos{1e6 + 2e6});
  EXPECT_EQ(target, source);
}

TEST(HostPort, PutWaitsWhileTheQueueIsFull) {
  Buffer target(6000);
  HostPort port(make_options(1e-3, 4000));
  const auto source = random_bytes(0, target.size());
  EXPECT_GE(time_of([&] { port.put(target, source); }), Nanos{2e6});
  port.flush();
  EXPECT_EQ(target, source);
}

TEST(HostPort, StopEndsEveryWait) {
  Buffer target(5000);
  HostPort port(make_options(1e-6, 1000));  // a millisecond a byte
  const auto source = random_bytes(0, target.size());
  std::atomic<int> ended = 0;
  std::vector<std::jthread> threads;
  const auto expect_stopped = [&](auto call) {
    threads.emplace_back([&, call] {
      expect_error(ErrorKind::timeout, call, {"stopped", "bytes not yet visible"});
      ++ended;
    });
  };
  expect_stopped([&] { port.put(target, source); });
  expect_stopped([&] { port.put(target, source); });
  expect_stopped([&] {
    port.put(std::span(target).first(1000), std::span(source).first(1000));  // a second, whoever comes first
    port.flush();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ended, 0);
  EXPECT_LT(time_of([&] {
              port.stop();
              threads.clear();
            }),
            Nanos{1e9});
  EXPECT_EQ(ended, 3);
  expect_error(ErrorKind::timeout, [&] { port.put(target, source); }, {"stopped"});
  expect_error(ErrorKind::timeout, [&] { port.then([] {}); }, {"stopped"});
}

TEST(HostPort, EndsWithoutWaitingForWhatIsOutstanding) {
  Buffer target(1000);
  int calls = 0;
  const auto time = time_of([&] {
    HostPort port(make_options(1e-6, 1000));
    port.put(target, random_bytes(0, target.size()));
    port.then([&] { ++calls; });
  });
  EXPECT_LT(time, Nanos{0.5e9});
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(std::ranges::count(target, std::byte{0}), 1000);
}

TEST(HostPort, NonsenseIsRefused) {
  for (const auto& options : {make_options(0, 1), make_options(1, 0), make_options(1, 1, -1)}) {
    expect_usage_error([&] { HostPort port(options); }, {"drain", "capacity", "latency"});
  }
  HostPort port(make_options(1, 1000));
  Buffer target(2), source(3);
  expect_usage_error([&] { port.put(target, source); }, {"3 bytes", "target of 2"});
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

// Whatever else runs on the machine only adds time, which makes a rate or a capacity look smaller. So the largest of
// several measurements counts, and a machine that is very busy may need up to 30 of them.
template <class Measure>
void expect_measured(Measure&& measure, double expected, double tolerance) {
  double found = 0;
  for (int i = 0; i < 30 && (i < 5 || found < expected * (1 - tolerance)); ++i) found = std::max(found, measure());
  EXPECT_NEAR(found, expected, tolerance * expected);
}

TEST(HostPortTiming, DrainsAtItsRateFromOneThreadOrTwo) {
  for (const double drain : {0.05, 0.4}) {
    for (const int num_threads : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} bytes/ns, {} threads", drain, num_threads));
      const auto size = static_cast<std::size_t>(drain * 30e6);  // 30 ms
      const auto source = random_bytes(0, size / static_cast<std::size_t>(num_threads));
      std::vector<Buffer> targets(2, Buffer(source.size()));
      HostPort port(make_options(drain, size / 4));
      const auto measure = [&] {
        const auto time = time_of([&] {
          std::vector<std::jthread> threads;
          for (int thread = 0; thread < num_threads; ++thread) {
            threads.emplace_back([&, thread] { port.put(targets[static_cast<std::size_t>(thread)], source); });
          }
          threads.clear();
          port.flush();
        });
        return static_cast<double>(size) / time.value;
      };
      expect_measured(measure, drain, 0.05);
    }
  }
}

// A burst of twice the capacity into an empty queue has issued when all but the capacity has drained.
TEST(HostPortTiming, HoldsItsCapacity) {
  for (const std::size_t capacity : {std::size_t{1} << 18, std::size_t{1} << 21}) {
    const double drain = static_cast<double>(capacity) / 20e6;  // in 20 ms
    HostPort port(make_options(drain, capacity));
    const auto source = random_bytes(0, 2 * capacity);
    Buffer target(source.size());
    const auto measure = [&] {
      const auto issue = time_of([&] { port.put(target, source); });
      port.flush();
      return static_cast<double>(source.size()) - drain * issue.value;
    };
    expect_measured(measure, static_cast<double>(capacity), 0.05);
  }
}

TEST(HostPortTiming, BurstsBelowTheCapacityAreFree) {
  const auto source = random_bytes(0, 1 << 20);
  Buffer target(source.size());
  HostPort port(make_options(0.01, 1 << 20));  // 100 ms
  EXPECT_LT(time_of([&] { port.put(target, source); }), Nanos{50e6});
}

#endif

}  // namespace
}  // namespace xs
