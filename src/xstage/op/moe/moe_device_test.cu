// The layer on a GPU: against the reference in double, and bitwise equal whatever the order, the claim, the number of
// SMs and of ranks; the tasks of the kernel are those of expand(). Then rates of the products, with rows stored
// locally and not at all. A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1
// failed, 3 no GPU.
//
//   moe_device_test [DRAWS] [--small | --bits | --rates]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "xstage/core/random.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/op/moe/gpu_layer.hpp"

namespace {

using namespace xs;
using namespace xs::moe;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

Inputs make_case(const MoeShape& shape, std::int64_t tokens, const std::string& routing, std::uint64_t seed) {
  return make_inputs(shape, make_routing(routing, tokens, shape.num_experts, shape.topk, seed), {}, seed, DType::bf16);
}

void expect_tasks(const Inputs& inputs, const GpuRunOptions& options, const GpuRunResult& result) {
  const auto wrong = wrong_task(inputs, options, result);
  expect(wrong.empty(), wrong);
}

struct Shape {
  const char* name;
  MoeShape shape;
  std::int64_t tokens;
  const char* routing;
  float clamp = std::numeric_limits<float>::infinity();
};

// Against the reference; every routing, edges of tiles, -1, shared experts.
void reference_cases(const std::function<void(const std::string&, const std::function<std::string()>&)>& run,
                     bool small) {
  std::vector<Shape> shapes = {
      {"one tile", {64, 128, 1, 1}, 128, "balanced"},
      {"one token", {64, 128, 4, 2}, 1, "balanced"},
      {"edges of tiles", {72, 136, 5, 3}, 201, "zipf"},
      {"clamped", {64, 128, 4, 2}, 100, "zipf", 0.05f},
  };
  if (!small) {
    shapes.push_back({"several tiles", {512, 384, 8, 2}, 700, "moderate"});
    shapes.push_back({"all to one expert", {256, 256, 16, 1}, 600, "all-to-one"});
    shapes.push_back({"gpt-oss's edges", {2880 / 4, 2880 / 4, 32, 4}, 300, "zipf"});
    shapes.push_back({"many experts", {128, 136, 1024, 8}, 500, "stress"});
    shapes.push_back({"shared experts", {256, 264, 16, 4, 2}, 150, "moderate"});
  }
  for (const auto& one : shapes) {
    for (const int num_ranks : {1, 2, 8}) {
      if (small && num_ranks > 2) continue;
      run(std::string(one.name) + ", " + std::to_string(num_ranks) + " ranks", [&] {
        auto inputs = make_case(one.shape, one.tokens, one.routing, 7);
        inputs.clamp = one.clamp;
        GpuRunOptions options;
        options.num_ranks = num_ranks;
        options.order = parse_order("lag:2", {});
        options.signals.timeout = {5e9};
        const auto result = run_on_gpu(inputs, options);
        expect_tasks(inputs, options, result);
        const auto error = relative_error(inputs, result.output, 5e9);
        char text[96];
        std::snprintf(text, sizeof(text), "relative error %.2e of %lld tokens", error.value,
                      static_cast<long long>(error.num_tokens));
        expect(error.value <= kMostRelativeError, text);
        return std::string(text);
      });
    }
  }
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{seed, 0} {}
  int whole(int low, int high) {
    return low + static_cast<int>(key_.below(next_++, static_cast<std::uint64_t>(high - low + 1)));
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

// The smallest ring with which the order runs.
int ring_for(const Inputs& inputs, const GpuRunOptions& options) {
  const auto problem = make_gpu_problem(inputs.shape, options.num_ranks, inputs.routing);
  int least = 1;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto tasks = expand(options.order, problem.counts(rank));
    least = std::max(least, static_cast<int>(ring_bound(tasks, problem.num_blocks(rank))));
  }
  return least;
}

// Random layers, each in a few random ways: all bits equal.
std::string equal_bits(int draws, int num_sms) {
  int runs = 0;
  for (int draw = 0; draw < draws; ++draw) {
    Dice dice(static_cast<std::uint64_t>(draw) + 100);
    MoeShape shape;
    shape.hidden = 8 * dice.whole(1, 80);
    shape.intermediate = 8 * dice.whole(1, 80);
    shape.num_experts = static_cast<int>(dice.whole(1, 24));
    shape.topk = static_cast<int>(dice.whole(1, std::min(shape.num_experts, 8)));
    shape.num_shared = static_cast<int>(dice.whole(0, 1));
    const char* routings[] = {"balanced", "moderate", "zipf", "stress", "all-to-one"};
    auto routing = make_routing(routings[dice.whole(0, 4)], dice.whole(1, 400), shape.num_experts, shape.topk,
                                static_cast<std::uint64_t>(draw));
    const int unused = static_cast<int>(dice.whole(0, 10));  // of ten slots
    for (auto& expert : routing.expert) {
      if (dice.whole(1, 10) <= unused) expert = -1;
    }
    const auto inputs = make_inputs(shape, std::move(routing), {}, static_cast<std::uint64_t>(draw), DType::bf16);
    std::vector<float> first;
    constexpr int kWays = 4;
    for (int way = 0; way < kWays; ++way) {
      GpuRunOptions options;
      options.signals.timeout = {5e9};
      const char* orders[] = {"serial", "wave:1", "wave:3", "waves:2", "alternate:5", "lag:1", "lag:4+own-last"};
      options.order = parse_order(orders[dice.whole(0, 6)], {});
      options.claim = dice.whole(0, 1) == 0 ? Claim::fixed : Claim::counter;
      options.num_ranks = static_cast<int>(dice.whole(1, 8));
      options.sms_per_rank = static_cast<int>(dice.whole(1, num_sms / options.num_ranks));
      options.receive = dice.whole(0, 3) == 0 ? GpuPlace::far : GpuPlace::own;
      options.repeats = static_cast<int>(dice.whole(1, 2));
      if (dice.whole(0, 2) == 0) options.ring_blocks = ring_for(inputs, options) + dice.whole(0, 2);
      if (dice.whole(0, 2) == 0) options.pace = {{}, {50}, {1e6}};
      const auto result = run_on_gpu(inputs, options);
      expect_tasks(inputs, options, result);
      if (way == 0) first = result.output;
      expect(result.output == first, "draw " + std::to_string(draw) + ", way " + std::to_string(way) + ": bits differ");
      ++runs;
    }
  }
  return std::to_string(draws) + " layers, " + std::to_string(runs) + " runs";
}

// --- rates ---

constexpr double kDepth = 64;  // columns of a step

struct Rate {
  int experts, rows;
  std::int64_t hidden, intermediate;
};

void print_shares(const Rate& one, const std::vector<GpuTask>& tasks, int num_workers) {
  const auto shares = worker_shares(tasks, num_workers);
  const auto per_step = [&](TaskKind kind, std::int64_t depth) {
    Cycles cycles{0};
    int count = 0;
    for (const auto& task : tasks) {
      if (task.task.kind != kind) continue;
      cycles += task.end - task.begin;
      ++count;
    }
    return cycles.value / std::max(1, count) / (static_cast<double>(depth) / kDepth);
  };
  std::printf(
      "    of %.0f cycles: Linear-1 %.1f %%, Linear-2 %.1f %%, operand stall %.1f %%, sender stall %.1f %%, sums %.1f "
      "%%, between tasks and at the end %.1f %%; cycles a step %.0f and %.0f (1024 at the peak)\n",
      shares.longest.value, 100 * shares.linear1, 100 * shares.linear2, 100 * shares.operand_stall,
      100 * shares.sender_stall, 100 * shares.reduce, 100 * shares.rest, per_step(TaskKind::linear1, one.hidden),
      per_step(TaskKind::linear2, one.intermediate));
}

const char* name_of(RowsTo rows_to) {
  return rows_to == RowsTo::owners ? "owners" : rows_to == RowsTo::own ? "own" : "nowhere";
}

// One rank that holds all experts.
class RatedLayer {
 public:
  explicit RatedLayer(const Rate& rate)
      : rate_(rate), routing_(routing_of(rate)), problem_(make_gpu_problem(shape_of(rate), 1, routing_)) {
    GpuRunOptions options;
    options.signals.timeout = {2e9};
    rank_ = std::make_unique<MeasuredGpuRank>(problem_, routing_, 0, options);
  }

  void print(const char* order_name, Claim claim, RowsTo rows_to, bool stamps = false) {
    constexpr int kRepeats = 11, kWarm = 2;
    const auto order = parse_order(order_name, {1, rank_->num_workers()});
    std::vector<double> times;
    for (int i = 0; i < kWarm + kRepeats; ++i) {
      const double time = rank_->time(order, claim, rows_to).value;
      if (i >= kWarm) times.push_back(time);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const double flops = 6.0 * rate_.experts * rate_.rows * static_cast<double>(rate_.hidden * rate_.intermediate);
    std::printf("%3d x %5d rows, hidden %5lld, intermediate %5lld  %-12s %-8s rows to %-8s %8.1f us  %6.1f TFLOP/s\n",
                rate_.experts, rate_.rows, static_cast<long long>(rate_.hidden),
                static_cast<long long>(rate_.intermediate), order_name, claim == Claim::fixed ? "static" : "counter",
                name_of(rows_to), median * 1e-3, flops / median * 1e-3);
    if (stamps) print_shares(rate_, rank_->tasks(order, claim, rows_to), rank_->num_workers());
    std::fflush(stdout);
  }

 private:
  static constexpr int kTopk = 8;
  static MoeShape shape_of(const Rate& rate) { return {rate.hidden, rate.intermediate, rate.experts, kTopk}; }
  static Routing routing_of(const Rate& rate) {
    Routing routing{std::int64_t{rate.experts} * rate.rows / kTopk, kTopk, {}, {}};
    for (std::int64_t slot = 0; slot < routing.num_tokens * kTopk; ++slot) {
      routing.expert.push_back(static_cast<std::int32_t>(slot % rate.experts));
      routing.weight.push_back(0.125f);
    }
    return routing;
  }
  Rate rate_;
  Routing routing_;
  MoeProblem problem_;
  std::unique_ptr<MeasuredGpuRank> rank_;
};

void print_rates(const Rate& rate) {
  RatedLayer layer(rate);
  for (const char* order : {"serial", "wave:1", "waves:2", "alternate", "lag:4", "lag:16"}) {
    for (const auto claim : {Claim::fixed, Claim::counter}) layer.print(order, claim, RowsTo::owners);
  }
  layer.print("serial", Claim::counter, RowsTo::nowhere);
  for (const char* order : {"serial", "lag:4"}) layer.print(order, Claim::counter, RowsTo::owners, true);
}

// One of eight ranks, its peers only receive: it comes to its end in any order, with the tasks of the schedule.
std::string measured_ranks(int draws) {
  int runs = 0;
  for (int draw = 0; draw < draws; ++draw) {
    Dice dice(static_cast<std::uint64_t>(draw) + 1);
    const MoeShape shape{8 * dice.whole(1, 80), 8 * dice.whole(1, 80), 8 * dice.whole(1, 4), dice.whole(1, 8),
                         dice.whole(0, 1)};
    const auto routing =
        make_routing("zipf", 8 * dice.whole(1, 100), shape.num_experts, shape.topk, static_cast<std::uint64_t>(draw));
    const auto problem = make_gpu_problem(shape, 8, routing);
    GpuRunOptions options;
    options.signals.timeout = {5e9};
    options.sms_per_rank = dice.whole(1, 132);
    options.receive = dice.whole(0, 1) == 0 ? GpuPlace::far : GpuPlace::own;
    const int rank = dice.whole(0, 7);
    MeasuredGpuRank measured(problem, routing, rank, options);
    for (const char* name : {"serial", "wave:1", "waves:2", "alternate:5", "lag:1+own-last"}) {
      const auto order = parse_order(name, {});
      const auto rows_to = dice.whole(0, 2) == 0   ? RowsTo::own
                           : dice.whole(0, 2) == 0 ? RowsTo::nowhere
                                                   : RowsTo::owners;
      const auto claim = dice.whole(0, 1) == 0 ? Claim::fixed : Claim::counter;
      measured.time(order, claim, rows_to);
      const auto tasks = measured.tasks(order, claim, rows_to);
      const auto expected = expand(order, problem.counts(rank));
      expect(tasks.size() == expected.size(), "another number of tasks");
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expect(tasks[i].task == expected[i], std::string(name) + ": another task at claim " + std::to_string(i));
      }
      ++runs;
    }
  }
  return std::to_string(draws) + " layers, " + std::to_string(runs) + " runs";
}

}  // namespace

int main(int argc, char** argv) {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::fprintf(stderr, "moe_device_test: no GPU\n");
    return 3;
  }
  int draws = 50, num_failed = 0, num_sms = 0;
  bool small = false, bits = false, rates = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    small = small || argument == "--small";
    bits = bits || argument == "--bits";
    rates = rates || argument == "--rates";
    if (argument[0] != '-') draws = std::atoi(argv[i]);
  }
  const auto run = [&](const std::string& name, const std::function<std::string()>& one) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      const auto remark = one();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      std::printf("ok %s  %s  %.2f s\n", name.c_str(), remark.c_str(), seconds);
    } catch (const std::exception& error) {
      ++num_failed;
      std::printf("FAILED %s: %s\n", name.c_str(), error.what());
    }
    std::fflush(stdout);
  };
  cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0);
  if (!rates) {
    if (!bits) reference_cases(run, small);
    run("equal bits", [&] { return equal_bits(small ? 2 : draws, num_sms); });
    if (!bits) run("measured ranks", [&] { return measured_ranks(small ? 2 : draws); });
  } else {
    for (const auto& rate : {Rate{8, 1024, 7168, 2048}, Rate{8, 512, 7168, 2048}, Rate{8, 128, 7168, 2048},
                             Rate{32, 512, 4096, 1536}, Rate{16, 512, 4096, 768}}) {
      run("rates", [&] { return print_rates(rate), std::string(); });
    }
  }
  std::printf("%d failed\n", num_failed);
  return num_failed == 0 ? 0 : 1;
}
