#include "xstage/core/error.hpp"
#include "xstage/mem/residency.hpp"

namespace xs {

Residency residency_of(int, const void*, std::string, int, int, std::size_t) {
  fail(ErrorKind::unavailable, "this build has no CUDA; `./xs build cuda` makes one that has");
}

}  // namespace xs
