#include "xstage/mem/cuda_check.hpp"
#include "xstage/signal/device_signals.cuh"
#include "xstage/signal/signal_kernels.hpp"

namespace xs {
namespace {

constexpr int kThreads = 128;

struct SetUp {
  const SignalTable* tables;
  std::uint32_t epoch;
  Word arrival;
};

__global__ void arm_kernel(const __grid_constant__ SetUp set_up) {
  DeviceSignals(set_up.tables[blockIdx.x]).arm_first(set_up.epoch, set_up.arrival);
}

__global__ void reset_kernel(const __grid_constant__ SetUp set_up) {
  const SignalTable& table = set_up.tables[blockIdx.x];
  const bool done = DeviceSignals(table).reset(set_up.arrival);
  if (threadIdx.x == 0) table.local->missed_reset = done ? 0 : 1;
}

// Ranks of one GPU wait for each other in it: cooperative, so that all of them run or none.
void run(int device, void (*kernel)(SetUp), int num_tables, SetUp set_up) {
  check_cuda(cudaSetDevice(device), "choosing a GPU");
  void* arguments[] = {&set_up};
  check_cuda(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(kernel), dim3(static_cast<unsigned>(num_tables)),
                                         dim3(kThreads), arguments, 0, nullptr),
             "setting up signals");
  check_cuda(cudaStreamSynchronize(nullptr), "setting up signals");
}

}  // namespace

void arm_signals(int device, const SignalTable* tables, int num_tables, std::uint32_t epoch, Word arrival) {
  run(device, arm_kernel, num_tables, {tables, epoch, arrival});
}

void reset_signals(int device, const SignalTable* tables, int num_tables, Word arrival) {
  run(device, reset_kernel, num_tables, {tables, 0, arrival});
}

}  // namespace xs
