#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

// The sizes of a mixture-of-experts layer and of its tiles.

namespace xs {

// A shared expert is one that every token goes to, with weight 1, behind its top-k slots. So a layer has all_experts()
// experts, the shared ones last, and a token num_slots() slots.
struct MoeShape {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  int num_experts = 0;  // routed
  int topk = 0;
  int num_shared = 0;

  std::int32_t all_experts() const { return num_experts + num_shared; }
  int num_slots() const { return topk + num_shared; }
  friend bool operator==(const MoeShape&, const MoeShape&) = default;
};

struct MoeModel {
  std::string name;
  MoeShape shape;          // of the routed experts alone
  int shared_experts = 0;  // that the model has
  bool verified = false;   // shape checked against the model's own configuration
};
std::vector<MoeModel> list_moe_models();
MoeModel find_moe_model(const std::string& name);
// hidden and intermediate divided by `factor`, all else kept.
MoeShape shrink(const MoeShape& shape, int factor);

struct MoeTiling {
  int block_rows = 128;
  int linear1_cols = 64;  // activation columns of a tile: as many gate and as many up columns of the product
  int linear2_cols = 128;
  int reduce_tokens = 32;
  int ring_blocks = 0;     // whose activations a rank holds at once; 0: all
  int dispatch_parts = 1;  // tasks that a rank's rows for one expert are dispatched by
  // Blocks whose activations a rank of so many holds at once.
  std::int64_t activation_slots(std::int64_t blocks) const {
    return ring_blocks == 0 ? blocks : std::min<std::int64_t>(ring_blocks, blocks);
  }
  friend bool operator==(const MoeTiling&, const MoeTiling&) = default;
};

struct MoeBytes {  // per element
  double weight = 2;
  double dispatch = 2;
  double combine = 2;
};

}  // namespace xs
