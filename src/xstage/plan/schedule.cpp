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

std::string slot_name(std::span<const Region> regions, const Access& access) {
  const auto region =
      access.region < regions.size() ? regions[access.region].name : fmt::format("region {}", access.region);
  return fmt::format("{}[{}] of rank {}", region, access.slot, access.rank);
}

std::string to_string(const Task& task) {
  return fmt::format("{}({}, {})", kTaskKindNames[static_cast<std::size_t>(task.kind)], task.block, task.tile);
}

std::string to_string(const Schedule& schedule, TaskId task) {
  const auto& own = schedule.ranks[static_cast<std::size_t>(task.rank)];
  return fmt::format("rank {}, claim {}, {}", task.rank, task.claim,
                     to_string(own.tasks[static_cast<std::size_t>(task.claim)]));
}

}  // namespace xs
