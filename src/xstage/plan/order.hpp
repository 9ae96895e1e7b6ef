#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xstage/plan/task.hpp"

// Orders: pure functions (claim index, Counts) -> Task, usable on host and device.
//
// There is one total order per rank. Workers claim from it statically (i, i + workers, ...) or through a counter.
// Every wait of a task points to a smaller claim index of its own rank or across ranks, which makes both claims free
// of deadlock (plan/check.hpp proves it for the expanded schedule).
//
// All orders have the frame: dispatch tasks, the two linears in some interleaving, reduce tasks. A new order is an
// OrderKind, its case in linear_task() and its row in order.cpp's table.

namespace xs {

// How workers take tasks from the one order.
enum class Claim {
  fixed,    // worker w takes w, w + workers, …
  counter,  // the next free worker takes the next task
};

// What routing decides on one rank. Plain view: kernels point group_blocks at device memory.
struct Counts {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
  std::int32_t num_experts = 0;    // of the whole layer
  std::int32_t num_groups = 0;     // local experts
  std::int32_t linear1_tiles = 0;  // column tiles of a row block
  std::int32_t linear2_tiles = 0;
  std::int32_t num_reduce = 0;                 // token chunks
  const std::int32_t* group_blocks = nullptr;  // [num_groups + 1] first row block of each local expert

  XS_HD constexpr std::int32_t num_blocks() const { return group_blocks[num_groups]; }
  XS_HD constexpr std::int64_t num_linear() const {
    return std::int64_t{num_blocks()} * (linear1_tiles + linear2_tiles);
  }
  XS_HD constexpr std::int64_t num_tasks() const { return num_experts + num_linear() + num_reduce; }
};

enum class OrderKind : std::uint8_t {
  serial,  // all Linear-1 tiles, then all Linear-2 tiles
  wave,    // the same, for one group of experts after the other
};

struct Order {
  OrderKind kind = OrderKind::serial;
  std::int32_t experts_per_wave = 1;  // wave only

  friend constexpr bool operator==(const Order&, const Order&) = default;
};

// Part `index` of `count` things split as evenly as contiguous parts allow; the first parts take the remainder.
XS_HD constexpr std::int64_t split_begin(std::int64_t count, std::int64_t num_parts, std::int64_t index) {
  const std::int64_t remainder = count % num_parts;
  return index * (count / num_parts) + (index < remainder ? index : remainder);
}

// The index-th destination of a dispatch: first local experts of every rank first, as waves consume them, beginning
// with the next rank's so that no two ranks start on the same port.
XS_HD constexpr std::int32_t dispatch_expert(const Counts& counts, std::int32_t index) {
  const std::int32_t whole = counts.num_experts / counts.num_ranks * counts.num_ranks;
  const std::int32_t width = index < whole ? counts.num_ranks : counts.num_experts - whole;
  const std::int32_t local = index / counts.num_ranks;
  const std::int32_t peer = (counts.rank + 1 + index % counts.num_ranks) % width;
  return static_cast<std::int32_t>(split_begin(counts.num_experts, counts.num_ranks, peer)) + local;
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

// Serial and wave: a wave is a range of row blocks, all its Linear-1 tiles stand before its Linear-2 tiles.
XS_HD constexpr Task linear_task(const Order& order, const Counts& counts, std::int64_t index) {
  const std::int32_t tiles = counts.linear1_tiles + counts.linear2_tiles;
  std::int32_t first = 0, last = counts.num_blocks();
  if (order.kind == OrderKind::wave) {
    const std::int32_t group = group_of_block(counts, static_cast<std::int32_t>(index / tiles));
    const std::int32_t begin = group / order.experts_per_wave * order.experts_per_wave;
    const std::int32_t end = begin + order.experts_per_wave;
    first = counts.group_blocks[begin];
    last = counts.group_blocks[end < counts.num_groups ? end : counts.num_groups];
  }
  const std::int64_t in_wave = index - std::int64_t{first} * tiles;
  const std::int64_t num_linear1 = std::int64_t{last - first} * counts.linear1_tiles;
  const bool is_linear1 = in_wave < num_linear1;
  const std::int64_t position = is_linear1 ? in_wave : in_wave - num_linear1;
  const std::int32_t width = is_linear1 ? counts.linear1_tiles : counts.linear2_tiles;
  return {is_linear1 ? TaskKind::linear1 : TaskKind::linear2, first + static_cast<std::int32_t>(position / width),
          static_cast<std::int32_t>(position % width)};
}

// The task at a claim index in [0, counts.num_tasks()).
XS_HD constexpr Task task_at(const Order& order, const Counts& counts, std::int64_t claim) {
  if (claim < counts.num_experts) {
    return {TaskKind::dispatch, dispatch_expert(counts, static_cast<std::int32_t>(claim)), 0};
  }
  const std::int64_t index = claim - counts.num_experts;
  if (index < counts.num_linear()) return linear_task(order, counts, index);
  return {TaskKind::reduce, static_cast<std::int32_t>(index - counts.num_linear()), 0};
}

// The whole order of one rank, in words that checker, simulator and CPU ranks share.
std::vector<Task> expand(const Order& order, const Counts& counts);

// "serial", "wave:8". `experts_per_wave` serves a bare "wave".
Order parse_order(const std::string& text, int experts_per_wave);
std::string to_string(const Order& order);

// "static" or "counter".
Claim parse_claim(const std::string& text);

struct OrderInfo {
  std::string name;
  std::string what;
};
std::vector<OrderInfo> list_orders();

}  // namespace xs
