#include "xstage/mem/gpu_share.hpp"

#include "xstage/core/error.hpp"

namespace xs {

std::string to_string(GpuShareBy by) {
  switch (by) {
    case GpuShareBy::ipc:
      return "ipc";
    case GpuShareBy::file:
      return "file";
    case GpuShareBy::fabric:
      return "fabric";
  }
  fail(ErrorKind::internal, "no way to share is {}", static_cast<int>(by));
}

}  // namespace xs
