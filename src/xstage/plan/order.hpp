#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xstage/plan/rotation.hpp"
#include "xstage/plan/task.hpp"

// Orders of a mixture-of-experts layer: pure functions (claim index, Counts) -> Task, usable on host and device.
//
// There is one total order per rank. Workers claim from it statically (i, i + workers, ...) or through a counter.
// Every wait of a task points to a smaller claim index of its own rank or across ranks, which makes both claims free
// of deadlock (plan/check.hpp proves it for the expanded schedule).
//
// All orders have the frame: dispatch tasks, the two linears, reduce tasks. Between them an order is a merge of two
// sequences, the Linear-1 tiles and the Linear-2 tiles, each block after block. A new order is an OrderKind, its case
// in stretch_at() and its row in order.cpp's table. In which sequence the blocks stand is another matter: Rotation.

namespace xs {

// How workers take tasks from the one order.
enum class Claim {
  fixed,    // worker w takes w, w + workers, …
  counter,  // the next free worker takes the next task
};

// What routing decides on one rank. Plain view: kernels point the arrays at device memory.
struct Counts {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
  std::int32_t num_experts = 0;    // of the whole layer, shared ones included
  std::int32_t num_groups = 0;     // local experts
  std::int32_t linear1_tiles = 0;  // column tiles of a row block
  std::int32_t linear2_tiles = 0;
  std::int32_t num_reduce = 0;                     // token chunks
  const std::int32_t* group_blocks = nullptr;      // [num_groups + 1] first row block of each local expert
  const RotationStarts* group_starts = nullptr;    // [num_groups] within its blocks; Rotation::natural reads none
  const std::int32_t* dispatch_experts = nullptr;  // [num_experts] in the sequence of their dispatch
  std::int32_t dispatch_parts = 1;                 // tasks for the rows of each

  XS_HD constexpr std::int32_t num_blocks() const { return group_blocks[num_groups]; }
  XS_HD constexpr std::int64_t num_linear1() const { return std::int64_t{num_blocks()} * linear1_tiles; }
  XS_HD constexpr std::int64_t num_linear2() const { return std::int64_t{num_blocks()} * linear2_tiles; }
  XS_HD constexpr std::int64_t num_linear() const { return num_linear1() + num_linear2(); }
  XS_HD constexpr std::int64_t num_dispatch() const { return std::int64_t{num_experts} * dispatch_parts; }
  XS_HD constexpr std::int64_t num_tasks() const { return num_dispatch() + num_linear() + num_reduce; }
};

enum class OrderKind : std::uint8_t {
  serial,     // all Linear-1 tiles, then all Linear-2 tiles
  wave,       // serial within n local experts, then the next n
  waves,      // serial within each of n even parts of the row blocks
  alternate,  // the fewest blocks of Linear-1 that are safe, then n Linear-2 and n Linear-1 tiles in turn
  lag,        // Linear-2 of a block evenly among the Linear-1 tiles of the block n later
};

struct Order {
  OrderKind kind = OrderKind::serial;
  std::int32_t n = 1;                     // what it counts is the kind's; serial has none
  Rotation rotation = Rotation::natural;  // of the row blocks of each local expert; their rows stand by source rank

  friend constexpr bool operator==(const Order&, const Order&) = default;
};

// Part `index` of `count` things split as evenly as contiguous parts allow; the first parts take the remainder.
XS_HD constexpr std::int64_t split_begin(std::int64_t count, std::int64_t num_parts, std::int64_t index) {
  const std::int64_t remainder = count % num_parts;
  return index * (count / num_parts) + (index < remainder ? index : remainder);
}

// The part that holds thing `index` of such a split.
XS_HD constexpr std::int64_t split_part(std::int64_t count, std::int64_t num_parts, std::int64_t index) {
  const std::int64_t size = count / num_parts, remainder = count % num_parts;
  const std::int64_t in_larger = remainder * (size + 1);
  return index < in_larger ? index / (size + 1) : remainder + (index - in_larger) / size;
}

// The local expert that holds a row block; needs at least one block.
XS_HD constexpr std::int32_t group_of_block(const Counts& counts, std::int32_t block) {
  std::int32_t low = 0, high = counts.num_groups;  // group_blocks[low] <= block < group_blocks[high]
  while (high - low > 1) {
    const std::int32_t middle = (low + high) / 2;
    if (counts.group_blocks[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The row block at a position of both sequences.
XS_HD constexpr std::int32_t block_at(const Order& order, const Counts& counts, std::int32_t position) {
  if (order.rotation == Rotation::natural) return position;
  const std::int32_t group = group_of_block(counts, position);
  const std::int32_t first = counts.group_blocks[group];
  return first +
         rotated(order.rotation, counts.group_starts[group], position - first, counts.group_blocks[group + 1] - first);
}

// A run of claims that merges num_linear1 tiles of the one sequence, from linear1 on, with num_linear2 of the other,
// from linear2 on. Every order is cut into such stretches, so one begins linear1 + linear2 tiles after the first.
struct Stretch {
  std::int64_t linear1 = 0, num_linear1 = 0;
  std::int64_t linear2 = 0, num_linear2 = 0;
};

XS_HD constexpr Stretch stretch_of_blocks(const Counts& counts, std::int32_t first, std::int32_t last) {
  return {std::int64_t{first} * counts.linear1_tiles, std::int64_t{last - first} * counts.linear1_tiles,
          std::int64_t{first} * counts.linear2_tiles, std::int64_t{last - first} * counts.linear2_tiles};
}

// The largest a x - m floor(c x / m) over x in [0, n); a, c, m, n >= 1. O(log m): the steps of Euclid's algorithm.
//
// In general a x + b floor((c x + d) / m). Whole multiples of m in c and d go into the line a x and into a constant,
// which leaves c, d < m. If line and stairs then rise both or fall both, an end is best. Otherwise the best x of every
// stair is its last one (the line rises) or its first one (it falls), which is a floor of a line over the number of
// the stair: the same problem with the roles of x and stair exchanged.
XS_HD constexpr std::int64_t max_line_minus_stairs(std::int64_t n, std::int64_t a, std::int64_t c, std::int64_t m) {
  std::int64_t b = -m, d = 0, constant = 0, best = 0;
  for (;;) {
    a += b * (c / m);
    c %= m;
    constant += b * (d / m);
    d %= m;
    const std::int64_t stairs = (c * (n - 1) + d) / m;
    const std::int64_t at_end = constant + a * (n - 1) + b * stairs;
    best = best > constant ? best : constant;
    best = best > at_end ? best : at_end;
    if (stairs == 0 || (a >= 0) == (b >= 0)) return best;
    if (a < 0) constant += a + b;  // the first x of stair s + 1 is one behind the last x of stair s
    const std::int64_t old_a = a, old_m = m;
    a = b;
    b = old_a;
    d = m - d - 1;
    m = c;
    c = old_m;
    n = stairs;
  }
}

// Blocks whose Linear-1 tiles alternate does first: the fewest with which no Linear-2 tile stands before a Linear-1
// tile of its block.
//
// With T1 and T2 tiles a block, a warm-up of w blocks and turns of n tiles, w T1 + t n Linear-1 tiles (or all of them)
// stand before the Linear-2 tiles of turn t. Block b begins in turn floor(b T2 / n) and needs (b + 1) T1 of them; its
// further tiles need no more. So w T1 >= T1 + b T1 - n floor(b T2 / n) for every b, and no smaller w will do.
XS_HD constexpr std::int32_t alternate_warm_up(const Counts& counts, std::int32_t n) {
  const std::int64_t t1 = counts.linear1_tiles;
  const std::int64_t lead = max_line_minus_stairs(counts.num_blocks(), t1, counts.linear2_tiles, n);
  return static_cast<std::int32_t>(1 + (lead + t1 - 1) / t1);
}

// A turn's Linear-1 tiles and the Linear-2 tiles of the next turn are one stretch, the warm-up and the first Linear-2
// tiles the one before. When Linear-1 has no tiles left, all of Linear-2 that remains follows.
XS_HD constexpr Stretch alternate_stretch(const Counts& counts, std::int32_t in_turn, std::int64_t index) {
  const std::int64_t n = in_turn;
  const std::int64_t warm_up = std::int64_t{alternate_warm_up(counts, in_turn)} * counts.linear1_tiles;
  const std::int64_t last = (counts.num_linear1() - warm_up + n - 1) / n;
  std::int64_t turn = index < warm_up + n ? 0 : (index - warm_up + n) / (2 * n);
  turn = turn < last ? turn : last;
  const std::int64_t begin = turn == 0 ? 0 : warm_up + (turn - 1) * n;
  return {begin, turn == last ? counts.num_linear1() - begin : warm_up + turn * n - begin, turn * n,
          turn == last ? counts.num_linear2() - turn * n : n};
}

// Step s has the Linear-1 tiles of block s and the Linear-2 tiles of block s - n, where there are such blocks.
XS_HD constexpr Stretch lag_stretch(const Counts& counts, std::int32_t n, std::int64_t index) {
  const std::int32_t blocks = counts.num_blocks(), behind = n < blocks ? n : blocks;
  const std::int64_t t1 = counts.linear1_tiles, t2 = counts.linear2_tiles;
  const std::int64_t head = behind * t1, body = (blocks - behind) * (t1 + t2);
  if (index < head) return {index / t1 * t1, t1, 0, 0};
  if (index < head + body) {
    const std::int64_t block = (index - head) / (t1 + t2);
    return {(behind + block) * t1, t1, block * t2, t2};
  }
  const std::int64_t block = blocks - behind + (index - head - body) / t2;
  return {blocks * t1, 0, block * t2, t2};
}

// The stretch that holds index `index` among the two linears' tiles.
XS_HD constexpr Stretch stretch_at(const Order& order, const Counts& counts, std::int64_t index) {
  const std::int32_t blocks = counts.num_blocks();
  const auto block = static_cast<std::int32_t>(index / (counts.linear1_tiles + counts.linear2_tiles));
  switch (order.kind) {
    case OrderKind::serial:
      break;
    case OrderKind::wave: {
      const std::int32_t begin = group_of_block(counts, block) / order.n * order.n;
      const std::int32_t end = counts.num_groups - begin > order.n ? begin + order.n : counts.num_groups;
      return stretch_of_blocks(counts, counts.group_blocks[begin], counts.group_blocks[end]);
    }
    case OrderKind::waves: {
      const std::int64_t part = split_part(blocks, order.n, block);
      return stretch_of_blocks(counts, static_cast<std::int32_t>(split_begin(blocks, order.n, part)),
                               static_cast<std::int32_t>(split_begin(blocks, order.n, part + 1)));
    }
    case OrderKind::alternate:
      return alternate_stretch(counts, order.n, index);
    case OrderKind::lag:
      return lag_stretch(counts, order.n, index);
  }
  return stretch_of_blocks(counts, 0, blocks);
}

// Linear-1 tiles among the first `count` tiles of a stretch: spread evenly for a lag, in front otherwise.
XS_HD constexpr std::int64_t linear1_among(OrderKind kind, const Stretch& stretch, std::int64_t count) {
  if (kind == OrderKind::lag) {
    const std::int64_t all = stretch.num_linear1 + stretch.num_linear2;
    return (count * stretch.num_linear1 + all - 1) / all;
  }
  return count < stretch.num_linear1 ? count : stretch.num_linear1;
}

XS_HD constexpr Task linear_task(const Order& order, const Counts& counts, std::int64_t index) {
  const Stretch stretch = stretch_at(order, counts, index);
  const std::int64_t before = index - stretch.linear1 - stretch.linear2;
  const std::int64_t linear1 = linear1_among(order.kind, stretch, before);
  const bool is_linear1 = linear1_among(order.kind, stretch, before + 1) > linear1;
  const std::int64_t position = is_linear1 ? stretch.linear1 + linear1 : stretch.linear2 + before - linear1;
  const std::int32_t width = is_linear1 ? counts.linear1_tiles : counts.linear2_tiles;
  return {is_linear1 ? TaskKind::linear1 : TaskKind::linear2,
          block_at(order, counts, static_cast<std::int32_t>(position / width)),
          static_cast<std::int32_t>(position % width)};
}

// The task at a claim index in [0, counts.num_tasks()).
XS_HD constexpr Task task_at(const Order& order, const Counts& counts, std::int64_t claim) {
  if (claim < counts.num_dispatch()) {
    return {TaskKind::dispatch, counts.dispatch_experts[claim / counts.dispatch_parts],
            static_cast<std::int32_t>(claim % counts.dispatch_parts)};
  }
  const std::int64_t index = claim - counts.num_dispatch();
  if (index < counts.num_linear()) return linear_task(order, counts, index);
  return {TaskKind::reduce, static_cast<std::int32_t>(index - counts.num_linear()), 0};
}

// The whole order of one rank, in words that checker, simulator and CPU ranks share.
std::vector<Task> expand(const Order& order, const Counts& counts);

// N of an order that is named without one.
struct OrderDefaults {
  int experts_per_wave = 1;
  int num_workers = 1;  // tiles that all workers do at once: a turn of alternate
};

// "serial", "wave:8", "lag:4+own-last", …: list_orders() has them all.
Order parse_order(const std::string& text, const OrderDefaults& defaults);
std::string to_string(const Order& order);

// "static" or "counter".
Claim parse_claim(const std::string& text);
std::string to_string(Claim claim);

struct OrderInfo {
  std::string name;
  std::string what;
};
std::vector<OrderInfo> list_orders();

}  // namespace xs
