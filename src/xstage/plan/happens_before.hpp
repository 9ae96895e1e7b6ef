#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "xstage/plan/schedule.hpp"

// Which tasks are over when a task begins, whoever executes them and however long they take.
//
// Only flags order tasks: who waits for a flag's full sum begins after all tasks that raise it, after all that those
// have waited for, and so on. A smaller claim index orders nothing, since two workers of a rank may overtake each
// other.

namespace xs {

class HappensBefore {
 public:
  // Every wait of the schedule is for the sum of all raises of its flag. The schedule must outlive this.
  explicit HappensBefore(const Schedule& schedule);

  // The first of `tasks` that may still be at work when `task` begins; `task` itself does not count. Looks at the flags
  // that `task` waits for first, and further back only as far as it must.
  std::optional<TaskId> unfinished(std::span<const TaskId> tasks, TaskId task);

  std::span<const Wait> waits(TaskId task) const {
    return schedule_.ranks[static_cast<std::size_t>(task.rank)].waits[static_cast<std::size_t>(task.claim)];
  }

 private:
  std::size_t index(std::int32_t rank, std::int32_t flag) const {
    return static_cast<std::size_t>(rank) * num_flags_ + static_cast<std::size_t>(flag);
  }
  bool raises_complete_flag(TaskId task) const;
  void complete(std::size_t flag);
  bool look_further_back();

  const Schedule& schedule_;
  std::size_t num_flags_;                        // of a rank
  std::vector<std::vector<std::size_t>> needs_;  // [flag of any rank] flags that are complete before this one is
  // Of the current question: flags known to be complete, and how far their needs have been followed.
  std::vector<std::size_t> complete_;
  std::size_t followed_ = 0;
  std::vector<std::uint32_t> seen_;  // [flag of any rank] the last question in which it was found complete
  std::uint32_t question_ = 0;
};

}  // namespace xs
