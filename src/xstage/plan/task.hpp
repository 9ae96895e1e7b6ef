#pragma once

#include <cstdint>
#include <string_view>

#include "xstage/core/units.hpp"

namespace xs {

// What a task does. The comment says what (block, tile) number.
enum class TaskKind : std::uint8_t {
  dispatch,  // (expert, part): this rank's rows for one expert, to the rank that holds it; (step, 0): its shard to a
             // peer
  linear1,   // (row block, column tile): gate and up products with SwiGLU
  linear2,   // (row block, column tile): down product, rows to their owners
  reduce,    // (chunk, 0): weighted sum of tokens over the top-k slots; of rows over the ranks
  tile,      // (row tile, column tile) of a product or an attention
};
inline constexpr int kNumTaskKinds = 5;
inline constexpr std::string_view kTaskKindNames[kNumTaskKinds] = {"dispatch", "linear1", "linear2", "reduce", "tile"};

// Unit of a schedule; one worker executes it without interruption.
struct Task {
  TaskKind kind;
  std::int32_t block;
  std::int32_t tile;

  friend constexpr bool operator==(const Task&, const Task&) = default;
};

}  // namespace xs
