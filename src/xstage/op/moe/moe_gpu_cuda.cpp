#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/op/moe/gpu_layer.hpp"

namespace xs::moe {
namespace {

void require_hopper(int device) {
  const auto gpu = gpu_info(device);
  if (gpu.compute_major == 9) return;
  fail(ErrorKind::unavailable, "GPU {} is a {} of compute capability {}.{}; the kernel needs 9.0", device, gpu.name,
       gpu.compute_major, gpu.compute_minor);
}

// Behind which a kernel has given up by itself, or it never will.
Nanos longest_run(const GpuRunOptions& options) { return options.signals.timeout * 2 + Nanos{30e9}; }

}  // namespace

GpuRunResult run_on_gpu(const Inputs& inputs, const GpuRunOptions& options) {
  require(options.repeats >= 1, "repeats must be at least 1, found {}", options.repeats);
  require(inputs.dtype() == DType::bf16, "the GPU's kernel takes bf16, found {}", to_string(inputs.dtype()));
  require_gpu_shape(inputs.shape);
  require_usable(inputs);
  require_hopper(options.device);
  const auto problem = make_gpu_problem(inputs.shape, options.num_ranks, inputs.routing, options.placement)
                           .with_ring(options.ring_blocks);
  GpuLayer layer(problem, inputs.routing, options);
  layer.fill(inputs);
  GpuRunResult result;
  const GpuStream stream(options.device, longest_run(options));
  result.workers_per_rank = layer.num_workers();
  const auto set = [&](bool stamps) { layer.set(options.order, options.claim, options.rows_to, stamps); };
  set(false);
  for (int i = 0; i < options.repeats; ++i) result.times.push_back(layer.run(stream));
  if (options.stamps) {
    set(true);
    result.stamped = layer.run(stream);
  }
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto output = layer.output(rank);
    result.output.insert(result.output.end(), output.begin(), output.end());
    if (options.stamps) result.tasks.push_back(layer.tasks(rank));
  }
  return result;
}

struct MeasuredGpuRank::Layer {
  Layer(const MoeProblem& problem, const Routing& routing, int measured_rank, const GpuRunOptions& options)
      : rank(measured_rank),
        stream(options.device, longest_run(options)),
        layer(problem, routing, options, measured_rank) {
    layer.fill_random(stream);
  }
  int rank;
  GpuStream stream;
  GpuLayer layer;
};

MeasuredGpuRank::MeasuredGpuRank(const MoeProblem& problem, const Routing& routing, int rank,
                                 const GpuRunOptions& options) {
  require_gpu_shape(problem.shape());
  require_hopper(options.device);
  layer_ = std::make_unique<Layer>(problem, routing, rank, options);
}
MeasuredGpuRank::~MeasuredGpuRank() = default;

Nanos MeasuredGpuRank::time(const Order& order, Claim claim, RowsTo rows_to) {
  layer_->layer.set(order, claim, rows_to, false);
  return layer_->layer.run(layer_->stream);
}

std::vector<GpuTask> MeasuredGpuRank::tasks(const Order& order, Claim claim, RowsTo rows_to) {
  layer_->layer.set(order, claim, rows_to, true);
  layer_->layer.run(layer_->stream);
  return layer_->layer.tasks(layer_->rank);
}

int MeasuredGpuRank::num_workers() const { return layer_->layer.num_workers(); }

}  // namespace xs::moe
