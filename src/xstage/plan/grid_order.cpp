#include "xstage/plan/grid_order.hpp"

namespace xs {

std::vector<Task> expand(Rotation rotation, const GridCounts& counts) {
  std::vector<Task> tasks(static_cast<std::size_t>(counts.num_tasks()));
  for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
    tasks[claim] = task_at(rotation, counts, static_cast<std::int64_t>(claim));
  }
  return tasks;
}

}  // namespace xs
