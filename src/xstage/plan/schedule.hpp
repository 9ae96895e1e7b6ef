#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "xstage/plan/task.hpp"

// An explicit schedule: what every rank does, in which order, what each task waits for, sends and publishes.
// Plain data; checker, simulator and CPU ranks read the same one.

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
  std::vector<Work> work;   // of each task
  Rows<Wait> waits;
  Rows<Raise> raises;
  Rows<Send> sends;
};

// Flags [first, first + count) of every rank, named name[0] … name[count - 1].
struct FlagGroup {
  std::string name;
  std::int32_t first;
  std::int32_t count;
};

struct Schedule {
  std::vector<FlagGroup> flags;
  std::vector<RankSchedule> ranks;

  std::int32_t num_flags() const { return flags.empty() ? 0 : flags.back().first + flags.back().count; }
};

std::string flag_name(std::span<const FlagGroup> flags, std::int32_t flag);
std::string to_string(const Task& task);

}  // namespace xs
