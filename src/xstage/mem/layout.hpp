#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xs {

struct RegionId {
  std::size_t index;
};

// A rank's symmetric memory as one list of named regions. Sizes and offsets both come from this list.
class Layout {
 public:
  static constexpr std::size_t kAlignment = 128;  // a line of its own: no false sharing between regions

  RegionId add(std::string name, std::size_t bytes);
  std::size_t num_regions() const { return regions_.size(); }
  const std::string& name(RegionId id) const { return regions_[id.index].name; }
  std::size_t offset(RegionId id) const { return regions_[id.index].offset; }
  std::size_t bytes(RegionId id) const { return regions_[id.index].bytes; }
  std::size_t total_bytes() const { return total_; }

 private:
  struct Region {
    std::string name;
    std::size_t offset;
    std::size_t bytes;
  };
  std::vector<Region> regions_;
  std::size_t total_ = 0;
};

}  // namespace xs
