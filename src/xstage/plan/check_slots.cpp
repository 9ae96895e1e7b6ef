#include "xstage/plan/check_slots.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "xstage/plan/happens_before.hpp"

namespace xs {
namespace {

class SlotChecker {
 public:
  SlotChecker(const Schedule& schedule, std::size_t most) : schedule_(schedule), most_(most), order_(schedule) {}

  std::vector<Fault> run() {
    sort_by_slot();
    std::size_t index = 0;
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (std::size_t region = 0; region < schedule_.regions.size(); ++region) {
        for (std::int32_t slot = 0; slot < schedule_.regions[region].num_slots; ++slot, ++index) {
          slot_ = {static_cast<std::int32_t>(rank), slot, 0, static_cast<std::uint8_t>(region), AccessMode::read};
          check_slot(std::span(uses_).subspan(begins_[index], begins_[index + 1] - begins_[index]));
          if (faults_.size() >= most_) return std::move(faults_);
        }
      }
    }
    return std::move(faults_);
  }

 private:
  struct Use {
    std::int32_t generation;
    AccessMode mode;
    TaskId task;
  };

  // Counting sort: all uses of a slot, in the order of ranks and claims.
  void sort_by_slot() {
    std::vector<std::size_t> first;  // [region] among the slots of a rank
    std::size_t num_slots = 0;
    for (const auto& region : schedule_.regions) {
      first.push_back(num_slots);
      num_slots += static_cast<std::size_t>(region.num_slots);
    }
    const auto slot_of = [&](const Access& access) {
      return static_cast<std::size_t>(access.rank) * num_slots + first[access.region] +
             static_cast<std::size_t>(access.slot);
    };
    const auto for_accesses = [&](auto&& body) {
      for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
        const auto& accesses = schedule_.ranks[rank].accesses;
        for (std::size_t claim = 0; claim < accesses.size(); ++claim) {
          const TaskId task{static_cast<std::int32_t>(rank), static_cast<std::int32_t>(claim)};
          for (const auto& access : accesses[claim]) body(access, task);
        }
      }
    };
    // Two places further on, so that counting up to the next slot's begin leaves each slot's own.
    begins_.resize(schedule_.ranks.size() * num_slots + 2);
    for_accesses([&](const Access& access, TaskId) { ++begins_[slot_of(access) + 2]; });
    for (std::size_t slot = 1; slot < begins_.size(); ++slot) begins_[slot] += begins_[slot - 1];
    uses_.resize(begins_.back());
    for_accesses([&](const Access& access, TaskId task) {
      uses_[begins_[slot_of(access) + 1]++] = {access.generation, access.mode, task};
    });
  }

  void check_slot(std::span<Use> uses) {
    if (!std::ranges::is_sorted(uses, {}, &Use::generation)) std::ranges::stable_sort(uses, {}, &Use::generation);
    std::vector<TaskId> before;  // who must be done before the slot is written again
    auto doing = FaultKind::written_twice;
    while (!uses.empty()) {
      slot_.generation = uses.front().generation;
      std::vector<TaskId> readers, writers;
      std::size_t count = 0;
      for (; count < uses.size() && uses[count].generation == slot_.generation; ++count) {
        (uses[count].mode == AccessMode::read ? readers : writers).push_back(uses[count].task);
      }
      uses = uses.subspan(count);
      if (writers.empty()) {
        report(FaultKind::read_before_written, readers.front(), "reads {}, which no task writes", place());
      }
      expect_order(writers, readers, FaultKind::read_before_written);
      expect_order(before, writers, doing);
      // Readers are behind their writers, so who waits for readers waits for all.
      doing = readers.empty() ? FaultKind::written_twice : FaultKind::reuse_before_read;
      before = std::move(readers.empty() ? writers : readers);
    }
  }

  // Everyone of `first` must be done before anyone of `then` begins. Both are sorted.
  void expect_order(const std::vector<TaskId>& first, const std::vector<TaskId>& then, FaultKind kind) {
    std::optional<TaskId> asked;
    for (const TaskId& task : then) {
      // Tasks with the same waits begin behind the same tasks.
      if (asked && same_waits(*asked, task) && !std::ranges::binary_search(first, *asked)) continue;
      asked = task;
      const auto open = order_.unfinished(first, task);
      if (!open) continue;
      const auto other = to_string(schedule_, *open);
      if (kind == FaultKind::read_before_written) {
        report(kind, task, "reads {}, which {} may not have written", place(), other);
      } else {
        report(kind, task, "writes {}, which {} may still {}", place(), other,
               kind == FaultKind::reuse_before_read ? "read" : "write");
      }
    }
  }

  bool same_waits(TaskId a, TaskId b) const {
    return a.rank == b.rank && std::ranges::equal(order_.waits(a), order_.waits(b));
  }

  std::string place() const {
    const auto name = slot_name(schedule_.regions, slot_);
    return slot_.generation == 0 ? name : fmt::format("{} (generation {})", name, slot_.generation);
  }

  template <class... Args>
  void report(FaultKind kind, TaskId task, fmt::format_string<Args...> format, Args&&... args) {
    if (faults_.size() >= most_) return;
    faults_.push_back(
        make_fault(kind, to_string(schedule_, task) + ": " + fmt::format(format, std::forward<Args>(args)...)));
  }

  const Schedule& schedule_;
  std::size_t most_;
  HappensBefore order_;
  std::vector<std::size_t> begins_;  // [slot of any rank] into uses_
  std::vector<Use> uses_;
  Access slot_{};  // the one that is looked at
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> check_slots(const Schedule& schedule, std::size_t most) { return SlotChecker(schedule, most).run(); }

}  // namespace xs
