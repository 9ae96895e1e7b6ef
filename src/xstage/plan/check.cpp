#include "xstage/plan/check.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

class Checker {
 public:
  Checker(const Schedule& schedule, std::size_t most) : schedule_(schedule), most_(most) {}

  std::vector<Fault> run() {
    for (int rank = 0; rank < num_ranks(); ++rank) check_tiles(rank);
    collect_raises();
    for (int rank = 0; rank < num_ranks(); ++rank) check_waits(rank);
    // A cycle is only worth reporting where every wait is otherwise in order.
    if (faults_.empty()) check_cycles();
    return std::move(faults_);
  }

 private:
  struct Flag {
    std::int64_t total = 0;
    std::int64_t last_own = -1;  // the last claim of the flag's own rank that raises it
  };

  int num_ranks() const { return static_cast<int>(schedule_.ranks.size()); }
  const RankSchedule& ranks(int rank) const { return schedule_.ranks[static_cast<std::size_t>(rank)]; }
  Flag& flag(int rank, std::int32_t index) {
    return flags_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(schedule_.num_flags()) +
                  static_cast<std::size_t>(index)];
  }
  bool known(std::int32_t index) const { return index >= 0 && index < schedule_.num_flags(); }

  template <class... Args>
  void report(FaultKind kind, fmt::format_string<Args...> format, Args&&... args) {
    if (faults_.size() < most_) {
      faults_.push_back({kind, to_string(kind) + ": " + fmt::format(format, std::forward<Args>(args)...)});
    }
  }

  std::string at(int rank, std::int64_t claim) const {
    return fmt::format("rank {}, claim {}, {}", rank, claim,
                       to_string(ranks(rank).tasks[static_cast<std::size_t>(claim)]));
  }

  void check_tiles(int rank) {
    const auto& own = ranks(rank);
    std::array<TileGrid, kNumTaskKinds> grids{};  // no tiles where the rank names no grid
    std::array<std::vector<std::int32_t>, kNumTaskKinds> times;
    for (const auto& grid : own.grids) {
      const auto kind = static_cast<std::size_t>(grid.kind);
      grids[kind] = grid;
      times[kind].resize(static_cast<std::size_t>(grid.num_blocks) * static_cast<std::size_t>(grid.num_tiles));
    }
    for (std::size_t index = 0; index < own.tasks.size(); ++index) {
      const auto claim = static_cast<std::int64_t>(index);
      const Task& task = own.tasks[index];
      const TileGrid& grid = grids[static_cast<std::size_t>(task.kind)];
      if (task.block < 0 || task.block >= grid.num_blocks || task.tile < 0 || task.tile >= grid.num_tiles) {
        report(FaultKind::tile_unknown, "{}: the grid has {} blocks of {} tiles", at(rank, claim), grid.num_blocks,
               grid.num_tiles);
        continue;
      }
      const auto tile = static_cast<std::size_t>(task.block) * static_cast<std::size_t>(grid.num_tiles) +
                        static_cast<std::size_t>(task.tile);
      if (++times[static_cast<std::size_t>(task.kind)][tile] == 2) {
        report(FaultKind::tile_twice, "{}: done before", at(rank, claim));
      }
    }
    for (const auto& grid : own.grids) {
      const auto& done = times[static_cast<std::size_t>(grid.kind)];
      for (std::size_t tile = 0; tile < done.size(); ++tile) {
        if (done[tile] != 0) continue;
        const auto width = static_cast<std::size_t>(grid.num_tiles);
        report(
            FaultKind::tile_missing, "rank {}: {} is never done", rank,
            to_string({grid.kind, static_cast<std::int32_t>(tile / width), static_cast<std::int32_t>(tile % width)}));
      }
    }
  }

  void collect_raises() {
    flags_.resize(static_cast<std::size_t>(num_ranks()) * static_cast<std::size_t>(schedule_.num_flags()));
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const auto& own = ranks(rank);
      for (std::size_t index = 0; index < own.tasks.size(); ++index) {
        const auto claim = static_cast<std::int64_t>(index);
        for (const auto& raise : own.raises[index]) {
          if (raise.rank < 0 || raise.rank >= num_ranks() || !known(raise.flag)) {
            report(FaultKind::flag_unknown, "{}: raises flag {} of rank {}", at(rank, claim), raise.flag, raise.rank);
            continue;
          }
          if (raise.add < 1) {
            report(FaultKind::raise_empty, "{}: adds {} to {} of rank {}", at(rank, claim), raise.add,
                   flag_name(schedule_.flags, raise.flag), raise.rank);
          }
          Flag& raised = flag(raise.rank, raise.flag);
          raised.total += raise.add;
          if (raise.rank == rank) raised.last_own = claim;
        }
      }
    }
  }

  void check_waits(int rank) {
    const auto& own = ranks(rank);
    for (std::size_t index = 0; index < own.tasks.size(); ++index) {
      const auto claim = static_cast<std::int64_t>(index);
      for (const auto& wait : own.waits[index]) {
        if (!known(wait.flag)) {
          report(FaultKind::flag_unknown, "{}: waits for flag {}", at(rank, claim), wait.flag);
          continue;
        }
        const auto name = [&] { return flag_name(schedule_.flags, wait.flag); };
        const Flag& raised = flag(rank, wait.flag);
        if (wait.count != raised.total) {
          report(wait.count > raised.total ? FaultKind::wait_never_raised : FaultKind::wait_too_early,
                 "{}: waits for {} of {}, all raises add up to {}", at(rank, claim), wait.count, name(), raised.total);
        }
        if (raised.last_own >= claim) {
          report(FaultKind::wait_forward, "{}: waits for {}, which {} raises later", at(rank, claim), name(),
                 at(rank, raised.last_own));
        }
      }
    }
  }

  // Kahn's algorithm over (rank, claim), one position per rank: a task is done when the one before it is done and
  // every flag it waits for is complete. What remains at the end waits for itself.
  void check_cycles() {
    std::vector<std::size_t> next(schedule_.ranks.size());
    for (Flag& one : flags_) one.total = 0;
    const auto ready = [&](int rank) {
      const auto& own = ranks(rank);
      const auto claim = next[static_cast<std::size_t>(rank)];
      if (claim == own.tasks.size()) return false;
      for (const auto& wait : own.waits[claim]) {
        if (flag(rank, wait.flag).total < wait.count) return false;
      }
      return true;
    };
    std::vector<int> runnable;
    for (int rank = 0; rank < num_ranks(); ++rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.back();
      runnable.pop_back();
      for (; ready(rank); ++next[static_cast<std::size_t>(rank)]) {
        for (const auto& raise : ranks(rank).raises[next[static_cast<std::size_t>(rank)]]) {
          flag(raise.rank, raise.flag).total += raise.add;
          if (raise.rank != rank) runnable.push_back(raise.rank);
        }
      }
    }
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const auto claim = next[static_cast<std::size_t>(rank)];
      if (claim == ranks(rank).tasks.size()) continue;
      for (const auto& wait : ranks(rank).waits[claim]) {
        const auto seen = flag(rank, wait.flag).total;
        if (seen >= wait.count) continue;
        report(FaultKind::deadlock, "{}: waits for {} of {}, {} can come", at(rank, static_cast<std::int64_t>(claim)),
               wait.count, flag_name(schedule_.flags, wait.flag), seen);
      }
    }
  }

  const Schedule& schedule_;
  std::size_t most_;
  std::vector<Flag> flags_;
  std::vector<Fault> faults_;
};

}  // namespace

std::string to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::tile_missing:
      return "tile missing";
    case FaultKind::tile_twice:
      return "tile twice";
    case FaultKind::tile_unknown:
      return "tile unknown";
    case FaultKind::flag_unknown:
      return "flag unknown";
    case FaultKind::raise_empty:
      return "raise empty";
    case FaultKind::wait_never_raised:
      return "wait never raised";
    case FaultKind::wait_too_early:
      return "wait too early";
    case FaultKind::wait_forward:
      return "wait forward";
    case FaultKind::deadlock:
      return "deadlock";
  }
  return "unknown fault";
}

std::vector<Fault> check(const Schedule& schedule, std::size_t most) {
  check(most >= 1, "check: room for at least one fault is needed");
  return Checker(schedule, most).run();
}

void require_valid(const Schedule& schedule, const std::string& name) {
  const auto faults = check(schedule);
  if (faults.empty()) return;
  std::string text = fmt::format("{}: this schedule fails the check; nothing was run", name);
  for (const auto& fault : faults) text += "\n  " + fault.text;
  throw Error(ErrorKind::usage, text);
}

}  // namespace xs
