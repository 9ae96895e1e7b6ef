#pragma once

#include <nlohmann/json_fwd.hpp>

// The name alone, for headers that only pass JSON on: nlohmann-json takes seconds to compile.

namespace xs {

using Json = nlohmann::ordered_json;

}  // namespace xs
