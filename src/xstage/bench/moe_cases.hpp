#pragma once

#include <cstdint>
#include <vector>

#include "xstage/mem/gpu.hpp"
#include "xstage/plan/moe_shape.hpp"

// What `xstage bench moe84` runs: twelve models, named before the first run, times seven numbers of tokens.

namespace xs::bench {

struct MoeCase {
  MoeModel model;
  std::int64_t tokens_per_rank;
};

inline constexpr int kMoeRanks = 8;

std::vector<MoeCase> moe84();

// Every n-th case, beginning with number i.
struct Shard {
  int i = 0, n = 1;
};
std::vector<MoeCase> moe84(Shard shard);

// SMs of the measured rank. Where the peers' memory is the host's, so few that PCIe stands to them as NVLink to the
// whole GPU, 132 x 53 / 376, but for few tokens: weights take their time then, and only all SMs load them at the full
// rate.
int workers_of(const MoeCase& one, GpuPlace receive, int num_sms);

}  // namespace xs::bench
