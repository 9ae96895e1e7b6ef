#include "xstage/core/error.hpp"
#include "xstage/op/moe/moe_gpu.hpp"

namespace xs::moe {

GpuRunResult run_on_gpu(const Inputs& inputs, const GpuRunOptions&) {
  require_gpu_shape(inputs.shape);
  find_gpus();
  fail(ErrorKind::internal, "a build without CUDA has found a GPU");
}

// Never made: the only constructor throws.
struct MeasuredGpuRank::Layer {};
MeasuredGpuRank::MeasuredGpuRank(const MoeProblem& problem, const Routing&, int, const GpuRunOptions&) {
  require_gpu_shape(problem.shape());
  find_gpus();
}
MeasuredGpuRank::~MeasuredGpuRank() = default;
Nanos MeasuredGpuRank::time(const Order&, Claim, RowsTo) { return {}; }
std::vector<GpuTask> MeasuredGpuRank::tasks(const Order&, Claim, RowsTo) { return {}; }
int MeasuredGpuRank::num_workers() const { return 0; }

}  // namespace xs::moe
