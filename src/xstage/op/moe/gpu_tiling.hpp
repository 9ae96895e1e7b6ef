#pragma once

#include "xstage/plan/moe_shape.hpp"

namespace xs::moe {

// Tiles of the GPU's kernel; make_gpu_problem() says in how many parts it dispatches.
inline constexpr MoeTiling kGpuTiling = {
    .block_rows = 128, .linear1_cols = 128, .linear2_cols = 256, .reduce_tokens = 4};

}  // namespace xs::moe
