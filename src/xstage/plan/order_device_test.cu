// The order functions give on the device what expand() gives on the host, and a bucket gives the same times.
// A plain program, because it runs on machines with nothing but a driver: exit 0 passed, 1 failed, 3 no GPU.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "xstage/core/bucket.hpp"
#include "xstage/core/random.hpp"
#include "xstage/plan/grid_order.hpp"
#include "xstage/plan/order.hpp"

namespace {

void require_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "order_device_test: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ? 3 : 1);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    require_cuda(cudaMalloc(&data_, (size + 1) * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    require_cuda(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    require_cuda(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    return values;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

template <class Order, class Counts>
__global__ void expand_kernel(const Order order, const Counts counts, xs::Task* tasks) {
  const auto stride = std::int64_t{gridDim.x} * blockDim.x;
  for (auto claim = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; claim < counts.num_tasks(); claim += stride) {
    tasks[claim] = xs::task_at(order, counts, claim);
  }
}

__global__ void bucket_kernel(const xs::BucketRates rates, int num_bursts, double* times) {
  xs::Bucket bucket;
  for (int burst = 0; burst < num_bursts; ++burst) {
    times[burst] = bucket.issue(rates, {1000.0 * (burst + 1)}).value;
    bucket.pass(rates, {100.0});
  }
}

template <class Order, class Counts>
bool tasks_agree(const Order& order, const Counts& on_host, const Counts& on_device, std::size_t& num_tasks) {
  const auto expected = xs::expand(order, on_host);
  DeviceArray<xs::Task> tasks(expected.size());
  expand_kernel<<<8, 128>>>(order, on_device, tasks.data());
  require_cuda(cudaDeviceSynchronize(), "expand_kernel");
  num_tasks += expected.size();
  return tasks.host() == expected;
}

bool orders_agree() {
  const xs::RandomKey key{23, 0};
  std::size_t num_tasks = 0;
  for (std::uint64_t draw = 0; draw < 500; ++draw) {
    std::uint64_t index = 1000 * draw;
    const auto pick = [&](int low, int high) { return low + static_cast<int>(key.below(index++, high - low + 1)); };
    xs::Counts counts;
    counts.num_ranks = pick(1, 9);
    counts.rank = pick(0, counts.num_ranks - 1);
    counts.num_experts = pick(1, 300);
    counts.num_groups =
        static_cast<std::int32_t>(xs::split_begin(counts.num_experts, counts.num_ranks, counts.rank + 1) -
                                  xs::split_begin(counts.num_experts, counts.num_ranks, counts.rank));
    counts.linear1_tiles = pick(1, 40);
    counts.linear2_tiles = pick(1, 60);
    counts.num_reduce = pick(0, 50);
    std::vector<std::int32_t> group_blocks{0};
    std::vector<xs::RotationStarts> group_starts;
    while (group_starts.size() < static_cast<std::size_t>(counts.num_groups)) {
      const int blocks = pick(0, 3) == 0 ? 0 : pick(0, 8), last = blocks > 0 ? blocks - 1 : 0;
      group_blocks.push_back(group_blocks.back() + blocks);
      group_starts.push_back({pick(0, last), pick(0, last)});
    }
    std::vector<std::int32_t> dispatch_experts;
    for (int expert = 0; expert < counts.num_experts; ++expert) {
      dispatch_experts.push_back((expert + counts.rank) % counts.num_experts);
    }
    counts.group_blocks = group_blocks.data();
    counts.group_starts = group_starts.data();
    counts.dispatch_experts = dispatch_experts.data();
    const xs::Order order{static_cast<xs::OrderKind>(draw % 5), pick(1, draw % 2 == 0 ? 20 : 200),
                          static_cast<xs::Rotation>(draw / 5 % 3)};

    const DeviceArray<std::int32_t> device_blocks(group_blocks);
    const DeviceArray<xs::RotationStarts> device_starts(group_starts);
    const DeviceArray<std::int32_t> device_experts(dispatch_experts);
    xs::Counts on_device = counts;
    on_device.group_blocks = device_blocks.data();
    on_device.group_starts = device_starts.data();
    on_device.dispatch_experts = device_experts.data();
    if (!tasks_agree(order, counts, on_device, num_tasks)) {
      std::fprintf(stderr, "order, draw %d: the device gives other tasks\n", static_cast<int>(draw));
      return false;
    }
  }
  std::printf("orders: %zu tasks equal\n", num_tasks);
  return true;
}

bool grid_orders_agree() {
  const xs::RandomKey key{24, 0};
  std::size_t num_tasks = 0;
  for (std::uint64_t draw = 0; draw < 100; ++draw) {
    std::uint64_t index = 100 * draw;
    const auto pick = [&](int low, int high) { return low + static_cast<int>(key.below(index++, high - low + 1)); };
    xs::GridCounts counts;
    counts.num_ranks = pick(1, 9);
    counts.rank = pick(0, counts.num_ranks - 1);
    counts.num_dispatch = pick(0, counts.num_ranks - 1);
    counts.row_tiles = pick(1, 100);
    counts.col_tiles = pick(0, 60);
    counts.num_reduce = pick(0, 50);
    counts.starts = {pick(0, counts.row_tiles - 1), pick(0, counts.row_tiles - 1)};
    if (!tasks_agree(static_cast<xs::Rotation>(draw % 3), counts, counts, num_tasks)) {
      std::fprintf(stderr, "grid, draw %d: the device gives other tasks\n", static_cast<int>(draw));
      return false;
    }
  }
  std::printf("grid orders: %zu tasks equal\n", num_tasks);
  return true;
}

bool buckets_agree() {
  const xs::BucketRates rates{{40.0}, {2.8}, {26e3}};
  constexpr int kBursts = 60;
  DeviceArray<double> times(kBursts);
  bucket_kernel<<<1, 1>>>(rates, kBursts, times.data());
  require_cuda(cudaDeviceSynchronize(), "bucket_kernel");
  xs::Bucket bucket;
  const auto found = times.host();
  for (int burst = 0; burst < kBursts; ++burst) {
    // The device contracts a * b + c into one rounding, the host does not.
    const double expected = bucket.issue(rates, {1000.0 * (burst + 1)}).value;
    bucket.pass(rates, {100.0});
    if (!(std::abs(found[static_cast<std::size_t>(burst)] / expected - 1) < 1e-12)) {
      std::fprintf(stderr, "burst %d: %.17g ns on the device, %.17g on the host\n", burst,
                   found[static_cast<std::size_t>(burst)], expected);
      return false;
    }
  }
  std::printf("bucket: %d bursts equal\n", kBursts);
  return true;
}

}  // namespace

int main() {
  int num_devices = 0;
  require_cuda(cudaGetDeviceCount(&num_devices), "no GPU");
  int num_passed = 0;
  for (const bool passed : {orders_agree(), grid_orders_agree(), buckets_agree()}) num_passed += passed ? 1 : 0;
  std::printf("%d passed, %d failed\n", num_passed, 3 - num_passed);
  return num_passed == 3 ? 0 : 1;
}
