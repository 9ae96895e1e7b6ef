#include "xstage/tile/store_path.hpp"

#include <array>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

constexpr std::array kPaths = {StorePath::st16, StorePath::st4, StorePath::bulk, StorePath::tensor};

}  // namespace

std::string to_string(StorePath path) {
  switch (path) {
    case StorePath::st16:
      return "st16";
    case StorePath::st4:
      return "st4";
    case StorePath::bulk:
      return "bulk";
    case StorePath::tensor:
      return "tensor";
  }
  fail(ErrorKind::internal, "store path {} has no name", static_cast<int>(path));
}

StorePath parse_store_path(const std::string& name) {
  for (const auto path : kPaths) {
    if (to_string(path) == name) return path;
  }
  fail(ErrorKind::usage, "store path '{}': expected st16, st4, bulk or tensor", excerpt(name));
}

}  // namespace xs
