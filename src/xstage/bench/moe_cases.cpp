#include "xstage/bench/moe_cases.hpp"

#include "xstage/core/error.hpp"

namespace xs::bench {
namespace {

constexpr const char* kModels[] = {"deepseek-v3",   "deepseek-v4-flash", "deepseek-v4-pro",    "kimi-k2",
                                   "qwen3-30b-a3b", "qwen3-235b-a22b",   "qwen3-next-80b-a3b", "qwen3.5-397b-a17b",
                                   "glm-4.5-air",   "minimax-m2",        "gpt-oss-120b",       "mixtral-8x7b"};
constexpr std::int64_t kTokens[] = {8, 32, 128, 512, 1024, 2048, 8192};

}  // namespace

std::vector<MoeCase> moe84() {
  std::vector<MoeCase> cases;
  for (const char* name : kModels) {
    const auto model = find_moe_model(name);
    for (const auto tokens : kTokens) cases.push_back({model, tokens});
  }
  return cases;
}

std::vector<MoeCase> moe84(Shard shard) {
  require(shard.n >= 1 && shard.i >= 0 && shard.i < shard.n, "shard {}/{}: expected i/n with i from 0 to n - 1",
          shard.i, shard.n);
  const auto all = moe84();
  std::vector<MoeCase> cases;
  for (auto i = static_cast<std::size_t>(shard.i); i < all.size(); i += static_cast<std::size_t>(shard.n)) {
    cases.push_back(all[i]);
  }
  return cases;
}

int workers_of(const MoeCase& one, GpuPlace receive, int num_sms) {
  constexpr int kAsToNvlink = 18;
  constexpr std::int64_t kFewTokens = 128;
  return receive == GpuPlace::far && one.tokens_per_rank > kFewTokens ? std::min(kAsToNvlink, num_sms) : num_sms;
}

}  // namespace xs::bench
