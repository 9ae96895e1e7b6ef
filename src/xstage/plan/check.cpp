#include "xstage/plan/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/plan/check_slots.hpp"
#include "xstage/plan/ring.hpp"

namespace xs {
namespace {

class Checker {
 public:
  Checker(const Schedule& schedule, const CheckLimits& limits, std::size_t most)
      : schedule_(schedule), limits_(limits), most_(most) {}

  CheckReport run() {
    check_form();
    if (!report_.faults.empty()) return std::move(report_);
    for (int rank = 0; rank < num_ranks(); ++rank) report_.ranks.push_back(measure(rank));
    for (int rank = 0; rank < num_ranks(); ++rank) check_tiles(rank);
    flags_.resize(schedule_.ranks.size() * static_cast<std::size_t>(schedule_.num_flags()));
    for (int rank = 0; rank < num_ranks(); ++rank) check_effects(rank);
    for (int rank = 0; rank < num_ranks(); ++rank) check_waits(rank);
    // Only where every wait is otherwise in order, a cycle is worth reporting and flags order tasks.
    if (report_.faults.empty()) check_cycles();
    if (report_.faults.empty()) report_.faults = check_slots(schedule_, most_);
    for (int rank = 0; rank < num_ranks(); ++rank) check_limits(rank);
    return std::move(report_);
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
  bool known_rank(std::int32_t rank) const { return rank >= 0 && rank < num_ranks(); }
  bool known_flag(std::int32_t index) const { return index >= 0 && index < schedule_.num_flags(); }
  bool known_slot(const Access& access) const {
    return known_rank(access.rank) && access.region < schedule_.regions.size() && access.slot >= 0 &&
           access.slot < schedule_.regions[access.region].num_slots && access.generation >= 0;
  }

  template <class... Args>
  void report(FaultKind kind, fmt::format_string<Args...> format, Args&&... args) {
    if (report_.faults.size() >= most_) return;
    report_.faults.push_back(make_fault(kind, fmt::format(format, std::forward<Args>(args)...)));
  }

  std::string at(int rank, std::int64_t claim) const {
    return to_string(schedule_, {rank, static_cast<std::int32_t>(claim)});
  }

  // What the other scans rely on to find their way through the lists.
  void check_form() {
    std::int32_t first = 0;
    for (const auto& group : schedule_.flags) {
      if (group.first != first || group.count < 0) {
        report(FaultKind::schedule_torn, "flags {} begin at {} and count {}; {} flags stand before them", group.name,
               group.first, group.count, first);
        return;
      }
      first += group.count;
    }
    for (const auto& region : schedule_.regions) {
      if (region.num_slots < 0) {
        report(FaultKind::schedule_torn, "region {} has {} slots", region.name, region.num_slots);
      }
    }
    for (int rank = 0; rank < num_ranks(); ++rank) check_form(rank);
  }

  void check_form(int rank) {
    const auto& own = ranks(rank);
    const auto rows = [&](const char* what, std::size_t size) {
      if (size == own.tasks.size()) return;
      report(FaultKind::schedule_torn, "rank {}: {} tasks, but {} of {}", rank, own.tasks.size(), size, what);
    };
    rows("work", own.work.size());
    rows("waits", own.waits.size());
    rows("raises", own.raises.size());
    rows("sends", own.sends.size());
    rows("accesses", own.accesses.size());
    const auto known = [](TaskKind kind) { return static_cast<int>(kind) < kNumTaskKinds; };
    std::array<bool, kNumTaskKinds> named{};
    for (const auto& grid : own.grids) {
      const bool possible = known(grid.kind) && grid.num_blocks >= 0 && grid.num_tiles >= 0;
      if (possible && !std::exchange(named[static_cast<std::size_t>(grid.kind)], true)) continue;
      report(FaultKind::schedule_torn, "rank {}: a second or impossible grid of task kind {}, {} blocks of {} tiles",
             rank, static_cast<int>(grid.kind), grid.num_blocks, grid.num_tiles);
    }
    for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
      if (known(own.tasks[claim].kind)) continue;
      report(FaultKind::schedule_torn, "rank {}, claim {}: task kind {} is unknown", rank, claim,
             static_cast<int>(own.tasks[claim].kind));
    }
  }

  static std::int64_t remote_bytes(int rank, std::span<const Send> sends) {
    std::int64_t bytes = 0;
    for (const auto& send : sends) bytes += send.rank == rank ? 0 : std::max<std::int64_t>(send.bytes, 0);
    return bytes;
  }

  RankFigures measure(int rank) const {
    const auto& own = ranks(rank);
    RankFigures figures;
    std::vector<std::map<std::int64_t, RingUse>> uses(schedule_.regions.size());
    for (std::size_t index = 0; index < own.tasks.size(); ++index) {
      const auto claim = static_cast<std::int64_t>(index);
      if (own.work[index].flops > 0) {
        const auto bytes = remote_bytes(rank, own.sends[index]);
        figures.tail_tasks = bytes > 0 ? figures.tail_tasks + 1 : 0;
        if (bytes > figures.largest_burst) {
          figures.largest_burst = bytes;
          figures.burst_claim = claim;
        }
      }
      for (const auto& access : own.accesses[index]) {
        if (!known_slot(access) || access.rank != rank || !schedule_.regions[access.region].ring) continue;
        const auto use = std::int64_t{access.generation} * schedule_.regions[access.region].num_slots + access.slot;
        uses[access.region].try_emplace(use, RingUse{claim, claim}).first->second.last = claim;
      }
    }
    for (const auto& region : uses) {
      std::vector<RingUse> in_turn;
      for (const auto& [number, use] : region) in_turn.push_back(use);
      figures.ring_bounds.push_back(ring_bound(in_turn));
    }
    return figures;
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

  void check_effects(int rank) {
    const auto& own = ranks(rank);
    for (std::size_t index = 0; index < own.tasks.size(); ++index) {
      const auto claim = static_cast<std::int64_t>(index);
      const auto raises = own.raises[index];
      for (const auto& raise : raises) {
        if (!known_rank(raise.rank) || !known_flag(raise.flag)) {
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
      for (const auto& send : own.sends[index]) {
        if (!known_rank(send.rank)) {
          report(FaultKind::send_unknown, "{}: sends to rank {} of {}", at(rank, claim), send.rank, num_ranks());
        } else if (send.bytes < 1) {
          report(FaultKind::send_empty, "{}: sends {} bytes to rank {}", at(rank, claim), send.bytes, send.rank);
        } else if (send.rank != rank && std::ranges::find(raises, send.rank, &Raise::rank) == raises.end()) {
          report(FaultKind::send_unpublished, "{}: sends to rank {} and raises no flag there", at(rank, claim),
                 send.rank);
        }
      }
      for (const auto& access : own.accesses[index]) {
        if (known_slot(access)) continue;
        report(FaultKind::slot_unknown, "{}: {} {}, generation {}", at(rank, claim),
               access.mode == AccessMode::read ? "reads" : "writes", slot_name(schedule_.regions, access),
               access.generation);
      }
    }
  }

  void check_waits(int rank) {
    const auto& own = ranks(rank);
    std::set<std::uint8_t> too_small;  // regions, reported once
    for (std::size_t index = 0; index < own.tasks.size(); ++index) {
      const auto claim = static_cast<std::int64_t>(index);
      for (const auto& wait : own.waits[index]) {
        if (!known_flag(wait.flag)) {
          report(FaultKind::flag_unknown, "{}: waits for flag {}", at(rank, claim), wait.flag);
          continue;
        }
        const auto name = [&] { return flag_name(schedule_.flags, wait.flag); };
        const Flag& raised = flag(rank, wait.flag);
        if (wait.count != raised.total) {
          report(wait.count > raised.total ? FaultKind::wait_never_raised : FaultKind::wait_too_early,
                 "{}: waits for {} of {}, all raises add up to {}", at(rank, claim), wait.count, name(), raised.total);
        }
        if (raised.last_own < claim) continue;
        if (const Access* slot = slot_waited_for(rank, index, static_cast<std::size_t>(raised.last_own))) {
          if (!too_small.insert(slot->region).second) continue;
          report(FaultKind::ring_too_small, "{}: waits for {}, in which {} comes later; {} slots found, {} would do",
                 at(rank, claim), slot_name(schedule_.regions, *slot), at(rank, raised.last_own),
                 schedule_.regions[slot->region].num_slots,
                 report_.ranks[static_cast<std::size_t>(rank)].ring_bounds[slot->region]);
          continue;
        }
        report(FaultKind::wait_forward, "{}: waits for {}, which {} raises later", at(rank, claim), name(),
               at(rank, raised.last_own));
      }
    }
  }

  // The slot of a ring that `claim` writes and that `user` touches in an earlier use.
  const Access* slot_waited_for(int rank, std::size_t claim, std::size_t user) const {
    const auto& own = ranks(rank);
    for (const auto& write : own.accesses[claim]) {
      if (write.mode != AccessMode::write || !known_slot(write) || !schedule_.regions[write.region].ring) continue;
      for (const auto& use : own.accesses[user]) {
        if (use.rank == write.rank && use.region == write.region && use.slot == write.slot &&
            use.generation < write.generation) {
          return &write;
        }
      }
    }
    return nullptr;
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

  void check_limits(int rank) {
    const auto& figures = report_.ranks[static_cast<std::size_t>(rank)];
    const auto outstanding = figures.largest_burst * limits_.workers;
    if (limits_.capacity_bytes && outstanding > *limits_.capacity_bytes) {
      report(FaultKind::over_capacity, "{}: sends {} bytes to peers, so {} workers may have {} outstanding; {} allowed",
             at(rank, figures.burst_claim), figures.largest_burst, limits_.workers, outstanding,
             *limits_.capacity_bytes);
    }
    if (limits_.tail_tasks && figures.tail_tasks > *limits_.tail_tasks) {
      report(FaultKind::tail_too_long, "rank {}: its last {} products all send to peers; {} allowed", rank,
             figures.tail_tasks, *limits_.tail_tasks);
    }
  }

  const Schedule& schedule_;
  const CheckLimits& limits_;
  std::size_t most_;
  std::vector<Flag> flags_;
  CheckReport report_;
};

}  // namespace

std::string to_string(FaultKind kind) { return std::string(kFaultKindNames[static_cast<std::size_t>(kind)]); }

Fault make_fault(FaultKind kind, const std::string& text) { return {kind, to_string(kind) + ": " + text}; }

CheckReport inspect(const Schedule& schedule, const CheckLimits& limits, std::size_t most) {
  check(most >= 1, "check: room for at least one fault is needed");
  require(limits.workers >= 1, "check: workers must be at least 1, found {}", limits.workers);
  return Checker(schedule, limits, most).run();
}

std::vector<Fault> check(const Schedule& schedule, std::size_t most) { return inspect(schedule, {}, most).faults; }

std::string describe(const std::vector<Fault>& faults, const std::string& name) {
  std::string text = name + ": this schedule fails the check";
  for (const auto& fault : faults) text += "\n  " + fault.text;
  return text;
}

void require_valid(const Schedule& schedule, const std::string& name) {
  const auto faults = check(schedule);
  if (!faults.empty()) fail(ErrorKind::usage, "{}\nNothing was run.", describe(faults, name));
}

}  // namespace xs
