#include <cmath>

#include "xstage/core/fuzz_support.hpp"
#include "xstage/sim/synthetic.hpp"

namespace xs {

std::vector<std::string> fuzz_seeds() { return {first_lines("data/synthetic_moe_combine.csv", 12)}; }

void fuzz_one(std::string_view input) {
  const auto runs = if_accepted([&] { return parse_synthetic_runs(std::string(input), "fuzz.csv"); });
  if (!runs) return;
  for (const auto& run : *runs) {
    check(parse_order(to_string(run.order), {1, run.num_sms}) == run.order, "order {} reads as another one",
          to_string(run.order));
    check(std::isfinite(run.measured.value) && std::isfinite(run.measured_local.value), "a time without end");
  }
}

}  // namespace xs
