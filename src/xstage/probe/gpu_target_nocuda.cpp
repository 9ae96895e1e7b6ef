#include "xstage/core/error.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/probe/gpu_target.hpp"

namespace xs {
namespace {

[[noreturn]] void none() {
  find_gpus();
  fail(ErrorKind::internal, "a build without CUDA has found a GPU");
}

}  // namespace

ProbeTarget gpu_target(const GpuPort&) { none(); }
NeighbourTarget neighbour_target(const GpuPort&) { none(); }
std::vector<GpuPort> ports_on_offer(int) { none(); }
Machine gpu_machine(int) { none(); }

}  // namespace xs
