#pragma once

#include <cstdint>

namespace xs::moe {

// Where rows of Linear-2 tiles go: the controls of every measurement.
enum class RowsTo : std::uint8_t {
  owners,   // what the layer needs
  own,      // as many bytes, to memory of the rank itself; the output means nothing
  nowhere,  // the output means nothing
};

}  // namespace xs::moe
