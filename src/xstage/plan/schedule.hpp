#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "xstage/plan/task.hpp"

// An explicit schedule: what every rank does, in which order, what each task waits for, reads, writes, sends and
// publishes. Plain data; checker, simulator and CPU ranks read the same one.

namespace xs {

// Rows of different length in two flat arrays.
template <class T>
class Rows {
 public:
  std::size_t size() const { return ends_.size(); }
  std::span<const T> operator[](std::size_t row) const {
    const std::size_t begin = row == 0 ? 0 : ends_[row - 1];
    return std::span(values_).subspan(begin, ends_[row] - begin);
  }
  void append(const T& value) { values_.push_back(value); }  // to the row that end_row() will close
  void end_row() { ends_.push_back(values_.size()); }

 private:
  std::vector<T> values_;
  std::vector<std::size_t> ends_;
};

// The task may begin when this rank's flag has reached `count`.
struct Wait {
  std::int32_t flag;
  std::int64_t count;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// When the task's results are visible to `rank`, its flag grows by `add`.
struct Raise {
  std::int32_t rank;
  std::int32_t flag;
  std::int64_t add;
  friend bool operator==(const Raise&, const Raise&) = default;
};

struct Send {
  std::int32_t rank;  // may be the own rank: a local store; of a pull, where the bytes come from
  std::int64_t bytes;
};

// How a task's bytes reach other ranks.
enum class Route : std::uint8_t {
  store,  // its worker stores them when it has computed
  copy,   // the rank's copy engine moves them then; the worker goes on
  pull,   // the other way: the worker loads them from their ranks before it computes, over those ranks' links
};

enum class AccessMode : std::uint8_t { read, write };

// The task reads or writes a slot of `rank`'s memory, or a part of it. Generations tell apart what a slot holds one
// after the other: all tasks that write one generation write different parts of it.
struct Access {
  std::int32_t rank;
  std::int32_t slot;
  std::int32_t generation;
  std::uint8_t region;  // of Schedule::regions
  AccessMode mode;
  friend bool operator==(const Access&, const Access&) = default;
};

// What a task costs besides its sends.
struct Work {
  double flops;       // of the full tile, padding included: that is what a tensor core executes
  double load_bytes;  // operands from device memory, without padding
  Route route = Route::store;
};

// Every (block, tile) of a grid is one task of one rank.
struct TileGrid {
  TaskKind kind;
  std::int32_t num_blocks;
  std::int32_t num_tiles;
};

struct RankSchedule {
  std::vector<TileGrid> grids;
  std::vector<Task> tasks;  // index = claim index
  std::vector<Work> work;   // of each task, as the rows below
  Rows<Wait> waits;
  Rows<Raise> raises;
  Rows<Send> sends;
  Rows<Access> accesses;

  void end_rows() {
    waits.end_row();
    raises.end_row();
    sends.end_row();
    accesses.end_row();
  }
};

// Flags [first, first + count) of every rank, named name[0] … name[count - 1].
struct FlagGroup {
  std::string name;
  std::int32_t first;
  std::int32_t count;
};

// A buffer of every rank in slots name[0] … name[num_slots - 1], each written and read under its own flags. In a ring
// the rank's own tasks use the slots in turn: use u is generation u / num_slots of slot u % num_slots.
struct Region {
  std::string name;
  std::int32_t num_slots;
  bool ring = false;
};

struct Schedule {
  std::vector<FlagGroup> flags;
  std::vector<Region> regions;
  std::vector<RankSchedule> ranks;

  std::int32_t num_flags() const { return flags.empty() ? 0 : flags.back().first + flags.back().count; }
};

struct TaskId {
  std::int32_t rank;
  std::int32_t claim;
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};

std::string flag_name(std::span<const FlagGroup> flags, std::int32_t flag);
std::string slot_name(std::span<const Region> regions, const Access& access);
std::string to_string(const Task& task);
std::string to_string(const Schedule& schedule, TaskId task);

}  // namespace xs
