#include "xstage/plan/schedule.hpp"

#include <fmt/core.h>

namespace xs {

std::string flag_name(std::span<const FlagGroup> flags, std::int32_t flag) {
  for (const auto& group : flags) {
    if (flag >= group.first && flag < group.first + group.count) {
      return fmt::format("{}[{}]", group.name, flag - group.first);
    }
  }
  return fmt::format("flag {}", flag);
}

std::string to_string(const Task& task) {
  return fmt::format("{}({}, {})", kTaskKindNames[static_cast<std::size_t>(task.kind)], task.block, task.tile);
}

}  // namespace xs
