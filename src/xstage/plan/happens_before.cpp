#include "xstage/plan/happens_before.hpp"

#include <algorithm>

namespace xs {

HappensBefore::HappensBefore(const Schedule& schedule)
    : schedule_(schedule),
      num_flags_(static_cast<std::size_t>(schedule.num_flags())),
      needs_(schedule.ranks.size() * num_flags_),
      seen_(needs_.size()) {
  std::vector<std::size_t> waited;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& own = schedule.ranks[rank];
    for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
      waited.clear();
      for (const auto& wait : own.waits[claim]) waited.push_back(index(static_cast<std::int32_t>(rank), wait.flag));
      for (const auto& raise : own.raises[claim]) {
        auto& needs = needs_[index(raise.rank, raise.flag)];
        // Tiles of one block come one after the other and wait for the same.
        const bool known =
            needs.size() >= waited.size() && std::equal(waited.begin(), waited.end(), needs.end() - std::ssize(waited));
        if (!known) needs.insert(needs.end(), waited.begin(), waited.end());
      }
    }
  }
}

std::optional<TaskId> HappensBefore::unfinished(std::span<const TaskId> tasks, TaskId task) {
  ++question_;
  complete_.clear();
  followed_ = 0;
  for (const auto& wait : waits(task)) complete(index(task.rank, wait.flag));
  for (const TaskId& one : tasks) {
    if (one == task) continue;
    while (!raises_complete_flag(one)) {
      if (!look_further_back()) return one;
    }
  }
  return std::nullopt;
}

bool HappensBefore::raises_complete_flag(TaskId task) const {
  const auto& own = schedule_.ranks[static_cast<std::size_t>(task.rank)];
  return std::ranges::any_of(own.raises[static_cast<std::size_t>(task.claim)],
                             [&](const Raise& raise) { return seen_[index(raise.rank, raise.flag)] == question_; });
}

void HappensBefore::complete(std::size_t flag) {
  if (seen_[flag] == question_) return;
  seen_[flag] = question_;
  complete_.push_back(flag);
}

bool HappensBefore::look_further_back() {
  if (followed_ == complete_.size()) return false;
  for (const auto flag : needs_[complete_[followed_++]]) complete(flag);
  return true;
}

}  // namespace xs
