#include "xstage/core/error.hpp"
#include "xstage/op/moe/moe_gpu.hpp"

namespace xs::moe {

GpuRunResult run_on_gpu(const Inputs& inputs, const GpuRunOptions&) {
  require_gpu_shape(inputs.shape);
  find_gpus();
  fail(ErrorKind::internal, "a build without CUDA has found a GPU");
}

}  // namespace xs::moe
