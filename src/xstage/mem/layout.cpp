#include "xstage/mem/layout.hpp"

#include "xstage/core/units.hpp"

namespace xs {

RegionId Layout::add(std::string name, std::size_t bytes) {
  regions_.push_back({std::move(name), total_, bytes});
  total_ += ceil_div(bytes, kAlignment) * kAlignment;
  return {regions_.size() - 1};
}

}  // namespace xs
