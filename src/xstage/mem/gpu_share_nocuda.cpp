#include "xstage/core/error.hpp"
#include "xstage/mem/gpu_share.hpp"

namespace xs {

struct GpuShare::State {};

GpuShare::GpuShare(RankSockets&, int, GpuShareBy, std::size_t) {
  fail(ErrorKind::unavailable, "this build has no CUDA; `./xs build cuda` makes one that has");
}
GpuShare::~GpuShare() = default;

}  // namespace xs
