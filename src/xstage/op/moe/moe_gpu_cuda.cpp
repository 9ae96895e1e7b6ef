#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/op/moe/gpu_layer.hpp"

namespace xs::moe {
namespace {

void require_hopper(int device) {
  const auto gpus = find_gpus();
  require(device >= 0 && device < static_cast<int>(gpus.size()), "GPU {}: there are {}", device, gpus.size());
  const auto& gpu = gpus[static_cast<std::size_t>(device)];
  if (gpu.compute_major == 9) return;
  fail(ErrorKind::unavailable, "GPU {} is a {} of compute capability {}.{}; the kernel needs 9.0", device, gpu.name,
       gpu.compute_major, gpu.compute_minor);
}

// Times of launches on the GPU.
class Timer {
 public:
  Timer() {
    check_cuda(cudaEventCreate(&begin_), "an event");
    check_cuda(cudaEventCreate(&end_), "an event");
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Nanos time(const GpuLayer& layer) const {
    check_cuda(cudaEventRecord(begin_, nullptr), "an event");
    layer.launch(nullptr);
    check_cuda(cudaEventRecord(end_, nullptr), "an event");
    check_cuda(cudaStreamSynchronize(nullptr), "the layer's kernel");
    layer.throw_if_given_up();
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "an event");
    return Nanos{milliseconds * 1e6};
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

GpuRunResult run_on_gpu(const Inputs& inputs, const GpuRunOptions& options) {
  require(options.repeats >= 1, "repeats must be at least 1, found {}", options.repeats);
  require(inputs.dtype() == DType::bf16, "the GPU's kernel takes bf16, found {}", to_string(inputs.dtype()));
  require_gpu_shape(inputs.shape);
  require_usable(inputs);
  require_hopper(options.device);
  const auto problem = make_gpu_problem(inputs.shape, options.num_ranks, inputs.routing, options.placement);
  GpuLayer layer(problem, inputs.routing, options);
  layer.fill(inputs);
  GpuRunResult result;
  const Timer timer;
  for (int i = 0; i < options.repeats; ++i) result.times.push_back(timer.time(layer));
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto output = layer.output(rank);
    result.output.insert(result.output.end(), output.begin(), output.end());
    result.tasks.push_back(layer.tasks(rank));
  }
  return result;
}

}  // namespace xs::moe
