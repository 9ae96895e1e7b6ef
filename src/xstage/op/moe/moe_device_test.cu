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
};

// Against the reference; every routing, edges of tiles, -1, shared experts.
void reference_cases(const std::function<void(const std::string&, const std::function<std::string()>&)>& run,
                     bool small) {
  std::vector<Shape> shapes = {
      {"one tile", {64, 128, 1, 1}, 128, "balanced"},
      {"one token", {64, 128, 4, 2}, 1, "balanced"},
      {"edges of tiles", {72, 136, 5, 3}, 201, "zipf"},
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
        const auto inputs = make_case(one.shape, one.tokens, one.routing, 7);
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

__global__ void fill_random(std::uint32_t* words, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    // Two bf16 in (-1, 1): sign, an exponent of 2^-1 to 2^-4, a mantissa.
    std::uint64_t mixed = (i + seed) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed ^= mixed >> 31;
    const auto half = [&](std::uint32_t bits) { return (bits & 0x807fu) | (123u + (bits >> 8 & 3u)) << 7; };
    words[i] = half(static_cast<std::uint32_t>(mixed)) | half(static_cast<std::uint32_t>(mixed >> 32)) << 16;
  }
}

void fill(const GpuMemory& memory, std::uint64_t seed) {
  fill_random<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(memory.data()), memory.size() / 4, seed);
  check_cuda(cudaGetLastError(), "random numbers");
}

constexpr double kDepth = 64;  // columns of a step

struct Rate {
  int experts, rows;
  std::int64_t hidden, intermediate;
};

// Where the workers' time went, by their stamps: of the longest worker's time, on the mean of all.
void print_shares(const Rate& one, const std::vector<GpuTask>& tasks, int num_sms) {
  struct Share {
    double cycles = 0, waited = 0;
    int count = 0;
  };
  Share linear1, linear2, reduce;
  double longest = 0;
  for (const auto& task : tasks) {
    auto& share = task.task.kind == TaskKind::linear1   ? linear1
                  : task.task.kind == TaskKind::linear2 ? linear2
                                                        : reduce;
    share.cycles += (task.end - task.begin).value;
    share.waited += task.waited.value;
    share.count += 1;
    longest = std::max(longest, task.end.value);
  }
  const double all = longest * num_sms, rest = all - linear1.cycles - linear2.cycles - reduce.cycles;
  const auto per_step = [](const Share& share, std::int64_t depth) {
    return share.cycles / std::max(1, share.count) / (static_cast<double>(depth) / kDepth);
  };
  std::printf(
      "    of %.0f cycles: Linear-1 %.1f %% (waiting %.1f %%), Linear-2 %.1f %% (waiting %.1f %%), sums %.1f %%, "
      "between tasks and at the end %.1f %%; cycles a step %.0f and %.0f (1024 at the peak)\n",
      longest, 100 * linear1.cycles / all, 100 * linear1.waited / all, 100 * linear2.cycles / all,
      100 * linear2.waited / all, 100 * reduce.cycles / all, 100 * rest / all, per_step(linear1, one.hidden),
      per_step(linear2, one.intermediate));
}

void print_rate(const Rate& one, const char* order, Claim claim, RowsTo rows_to, int repeats, int num_sms,
                bool stamps = false) {
  constexpr int kTopk = 8;
  const MoeShape shape{one.hidden, one.intermediate, one.experts, kTopk};
  Routing routing{std::int64_t{one.experts} * one.rows / kTopk, kTopk, {}, {}};
  for (std::int64_t slot = 0; slot < routing.num_tokens * kTopk; ++slot) {
    routing.expert.push_back(static_cast<std::int32_t>(slot % one.experts));
    routing.weight.push_back(0.125f);
  }
  const auto problem = make_gpu_problem(shape, 1, routing);
  GpuRunOptions options;
  options.order = parse_order(order, {1, num_sms});
  options.claim = claim;
  options.rows_to = rows_to;
  options.stamps = stamps;
  options.signals.timeout = {2e9};
  const GpuLayer layer(problem, routing, options);
  fill(layer.memory(0).tokens, 1);
  fill(layer.memory(0).gate_up, 2);
  fill(layer.memory(0).down, 3);
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "an event");
  check_cuda(cudaEventCreate(&end), "an event");
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    check_cuda(cudaEventRecord(begin), "an event");
    layer.launch(nullptr);
    check_cuda(cudaEventRecord(end), "an event");
    check_cuda(cudaEventSynchronize(end), "the layer's kernel");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "an event");
    if (i >= 2) times.push_back(milliseconds);
  }
  layer.throw_if_given_up();
  std::sort(times.begin(), times.end());
  const double flops =
      6.0 * one.experts * one.rows * static_cast<double>(one.hidden) * static_cast<double>(one.intermediate);
  const double median = times[times.size() / 2];
  std::printf("%3d x %5d rows, hidden %5lld, intermediate %5lld  %-12s %-8s rows to %-8s %8.1f us  %6.1f TFLOP/s\n",
              one.experts, one.rows, static_cast<long long>(one.hidden), static_cast<long long>(one.intermediate),
              order, claim == Claim::fixed ? "static" : "counter",
              rows_to == RowsTo::owners ? "owners"
              : rows_to == RowsTo::own  ? "own"
                                        : "nowhere",
              median * 1e3, flops / median * 1e-9);
  if (stamps) print_shares(one, layer.tasks(0), num_sms);
  std::fflush(stdout);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
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
  } else {
    for (const auto& one : {Rate{8, 1024, 7168, 2048}, Rate{8, 512, 7168, 2048}, Rate{8, 128, 7168, 2048},
                            Rate{32, 512, 4096, 1536}, Rate{16, 512, 4096, 768}}) {
      for (const char* order : {"serial", "wave:1", "waves:2", "alternate", "lag:4", "lag:16"}) {
        for (const auto claim : {Claim::fixed, Claim::counter}) {
          run("rate", [&] { return print_rate(one, order, claim, RowsTo::owners, 11, num_sms), std::string(); });
        }
      }
      run("rate",
          [&] { return print_rate(one, "serial", Claim::counter, RowsTo::nowhere, 11, num_sms), std::string(); });
      for (const char* order : {"serial", "lag:4"}) {
        run("rate",
            [&] { return print_rate(one, order, Claim::counter, RowsTo::owners, 11, num_sms, true), std::string(); });
      }
    }
  }
  std::printf("%d failed\n", num_failed);
  return num_failed == 0 ? 0 : 1;
}
