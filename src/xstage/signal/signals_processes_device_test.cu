// Signals between kernels of several processes that share a GPU: payloads, round trips, lateness, dropped raises, a
// lost process, resets, graphs. A plain program, because it runs on machines with nothing but a driver: exit 0 passed,
// 1 failed, 3 no GPU. Kernels of several processes run at the same time only under a multi-process service:
//
//   tools/with_mps signals_processes_device_test [--epochs N] [--late-s S] [--seed S] [--only TEXT]
//
// With several GPUs rank r runs on GPU r modulo their number.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "xstage/mem/gpu_share.hpp"
#include "xstage/mem/run_ranks.hpp"
#include "xstage/signal/signal_case_fixture.cuh"

namespace xs::cases {
namespace {

// This process never calls CUDA, which does not survive a fork; a process of its own finds out.
struct Machine {
  int num_gpus;
  int num_sms;
};

struct Process {
  RankSockets& sockets;
  const Machine& machine;
  std::vector<char>& remark;  // of rank 0, for the table
  int rank() const { return sockets.rank(); }
  int num_ranks() const { return sockets.num_ranks(); }
  int device() const { return rank() % machine.num_gpus; }
  int blocks() const { return machine.num_sms * machine.num_gpus / num_ranks() / 2; }
};

// Runs `body` once per rank, in processes. Returns what rank 0 remarks.
std::string run_processes(int num_ranks, const Machine& machine, const std::function<void(const Process&)>& body) {
  constexpr std::size_t kMost = 400;
  Layout layout;
  const auto region = RankSockets::reserve(layout);
  const auto said = layout.add("remark", kMost);
  const World world(layout, num_ranks, RanksAre::processes);
  run_ranks(world, [&](Rank rank) {
    RankSockets sockets(rank, region, {.timeout = Nanos{20e9}});
    std::vector<char> remark;
    body({sockets, machine, remark});
    remark.resize(std::min(remark.size(), kMost - 1));
    std::copy(remark.begin(), remark.end(), rank.local_as<char>(said).begin());
  });
  return world.rank(0).local_as<char>(said).data();
}

// The same, with signals between them.
class Shared {
 public:
  Shared(const Process& process, const Settings& settings, SignalOptions options = named(10))
      : layout_(process.num_ranks()),
        share_(process.sockets, process.device(), GpuShareBy::ipc, layout_.layout.total_bytes()),
        fixture_(layout_, GpuWorld(layout_.layout, share_.parts(), process.rank(), process.device()), process.blocks(),
                 settings, std::move(options)) {}
  Fixture* operator->() { return &fixture_; }

 private:
  CaseLayout layout_;
  GpuShare share_;
  Fixture fixture_;
};

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void remark(const Process& process, const std::string& text) { process.remark.assign(text.begin(), text.end()); }

void payload_cases(Table& table, const Settings& settings, const Machine& machine) {
  for (const int num_ranks : {2, 3, 4}) {
    for (const bool all_to_all : {false, true}) {
      table.run("payload " + std::to_string(num_ranks) + " processes " + (all_to_all ? "all to all" : "ring"),
                [&](std::string&) {
                  constexpr int kLaunches = 10;
                  run_processes(num_ranks, machine, [&](const Process& process) {
                    Shared shared(process, settings);
                    for (int i = 0; i < kLaunches; ++i) {
                      shared->run(shared->epochs(settings.epochs / kLaunches, all_to_all));
                    }
                  });
                  return settings.epochs / kLaunches * kLaunches;
                });
    }
  }
}

void round_trip_case(Table& table, const Machine& machine) {
  table.run("round trip", [&](std::string& remark_text) -> std::int64_t {
    remark_text = run_processes(2, machine, [&](const Process& process) {
      Layout layout;
      const auto region = GpuSignals::reserve(layout, 1, 2);
      const GpuShare share(process.sockets, process.device(), GpuShareBy::ipc, layout.total_bytes());
      const GpuWorld world(layout, share.parts(), process.rank(), process.device());
      const GpuSignals signals(world, region, 1, named(10));
      const auto trips = measure_round_trips(world, signals, 20'000);
      remark(process, trips.text());
      // 1.9 us were measured between two processes that share a GPU; a third more is this test's limit.
      expect(process.rank() != 0 || trips.median_ns <= 1.3 * 1900, trips.text());
    });
    return 1;
  });
}

void late_cases(Table& table, const Settings& settings, const Machine& machine) {
  table.run("a process " + std::to_string(settings.late_s) + " s late", [&](std::string&) {
    run_processes(3, machine, [&](const Process& process) {
      Shared shared(process, settings, named());
      if (process.rank() == 1) sleep_s(settings.late_s);
      shared->run(shared->epochs(100, true));
    });
    return std::int64_t{100};
  });
  table.run("processes that launch in reversed order", [&](std::string&) {
    run_processes(4, machine, [&](const Process& process) {
      Shared shared(process, settings);
      sleep_s(0.2 * (3 - process.rank()));
      shared->run(shared->epochs(1000, true));
    });
    return std::int64_t{1000};
  });
}

// All processes end with the report of the same wait, and go on after a reset.
void dropped_raise_case(Table& table, const Settings& settings, const Machine& machine) {
  table.run("a dropped raise", [&](std::string& said) {
    said = run_processes(3, machine, [&](const Process& process) {
      Shared shared(process, settings, named(1));
      auto one = shared->epochs(100, true);
      one.drop_rank = 1;
      one.drop_epoch = 50;
      const auto begin = Clock::now();
      shared->start(one);
      const auto text = shared->report();
      const double waited = seconds_since(begin);
      remark(process, text);
      const int count = process.blocks();
      expect_words(text, {"rank 2 waited 1.", "a flag from rank 1: expected " + std::to_string(count) + ", seen " +
                                                  std::to_string(count - 1)});
      expect(waited < 3, "the kernel ended after " + std::to_string(waited) + " s");
      shared->reset();
      shared->run(shared->epochs(1000, true));
    });
    return std::int64_t{1000};
  });
}

void reset_case(Table& table, const Settings& settings, const Machine& machine) {
  table.run("100 collective resets", [&](std::string& said) {
    said = run_processes(2, machine, [&](const Process& process) {
      Shared shared(process, settings, named(0.2));
      std::size_t before = 0, after = 0, total = 0;
      for (int i = 0; i <= 100; ++i) {
        // The first round loads what is loaded once. Others' memory counts as well, so all look together.
        if (i == 1) {
          process.sockets.meet();
          check_cuda(cudaMemGetInfo(&before, &total), "free memory");
          process.sockets.meet();
        }
        auto one = shared->epochs(20, true);
        one.drop_rank = i % 2;
        one.drop_epoch = i % 20;
        process.sockets.meet();  // so that a slow start is no timeout
        shared->start(one);
        expect_words(shared->report(), {"rank " + std::to_string(1 - i % 2) + " waited"});
        shared->reset();
        process.sockets.meet();
        shared->run(shared->epochs(10, true));
      }
      process.sockets.meet();
      check_cuda(cudaMemGetInfo(&after, &total), "free memory");
      process.sockets.meet();
      remark(process, std::to_string(after) + " bytes free before and after");
      expect(before == after, std::to_string(before) + " bytes were free, now " + std::to_string(after));
    });
    return std::int64_t{1010};
  });
}

void graph_case(Table& table, const Settings& settings, const Machine& machine) {
  table.run("1,000 replays of a captured graph in every process", [&](std::string&) {
    run_processes(2, machine, [&](const Process& process) {
      Shared shared(process, settings);
      const auto one = shared->epochs(5, true);
      const CapturedLaunch captured([&](cudaStream_t stream) { shared->start(one, 0, stream); });
      for (int i = 0; i < 1000; ++i) captured.replay();
      shared->expect_done(1000 * one.num_epochs);
    });
    return std::int64_t{5000};
  });
}

// Rank 1 is killed between two launches. The others name the flag that does not come, their contexts are unharmed, and
// so is a process that has nothing to do with them.
void lost_process_case(Table& table, const Settings& settings, const Machine& machine) {
  table.run("a killed process", [&](std::string& said) {
    Layout layout;
    const auto texts = layout.add("texts", 400);
    const World notes(layout, 1, RanksAre::processes);
    try {
      run_processes(3, machine, [&](const Process& process) {
        Shared shared(process, settings, named(1));
        shared->run(shared->epochs(100, true));
        process.sockets.meet();
        if (process.rank() == 1) ::raise(SIGKILL);
        shared->start(shared->epochs(100, true));
        const auto text = shared->report();
        expect_words(text, {"waited 1.", "a flag from rank 1"});
        if (process.rank() == 0) std::copy(text.begin(), text.end(), notes.rank(0).local_as<char>(texts).begin());
        const Fixture alone(1, GpuPlace::own, 4, settings);
        auto one = alone.epochs(10);
        alone.start(one);
        finish();
      });
    } catch (const std::exception& error) {
      expect_words(error.what(), {"rank 1 (process", "signal 9"});
    }
    said = notes.rank(0).local_as<char>(texts).data();
    expect_words(said, {"a flag from rank 1"});
    run_processes(1, machine, [&](const Process&) {
      Fixture fixture(2, GpuPlace::own, 4, settings);
      fixture.run(fixture.epochs(100));
    });
    return std::int64_t{100};
  });
}

Machine find_machine() {
  Layout layout;
  const auto region = layout.add("machine", sizeof(Machine));
  const World world(layout, 1, RanksAre::processes);
  run_ranks(world, [&](Rank rank) {
    auto& found = rank.local_as<Machine>(region)[0];
    check_cuda(cudaGetDeviceCount(&found.num_gpus), "no GPU here");
    check_cuda(cudaDeviceGetAttribute(&found.num_sms, cudaDevAttrMultiProcessorCount, 0), "SMs");
  });
  return world.rank(0).local_as<Machine>(region)[0];
}

int run_all(const Settings& settings, const Machine& machine) {
  Table table(settings);
  round_trip_case(table, machine);
  payload_cases(table, settings, machine);
  dropped_raise_case(table, settings, machine);
  reset_case(table, settings, machine);
  graph_case(table, settings, machine);
  late_cases(table, settings, machine);
  lost_process_case(table, settings, machine);
  return table.exit_code();
}

}  // namespace
}  // namespace xs::cases

int main(int argc, char** argv) {
  // Before the first call of CUDA: a launch must not wait for another kernel's end to load its code. (More hardware
  // queues than usual are not to be had: four processes that ask for 32 each get "out of memory".)
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::alarm(400);  // a hang ends here, and with this process all ranks
  xs::cases::Machine machine{};
  try {
    machine = xs::cases::find_machine();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "signals_processes_device_test: %s\n", error.what());
    return 3;
  }
  try {
    return xs::cases::run_all(xs::cases::parse(argc, argv), machine);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "signals_processes_device_test: %s\n", error.what());
    return 1;
  }
}
