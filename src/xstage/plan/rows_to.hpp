#pragma once

#include <cstdint>

namespace xs {

// Where a rank's rows go: the controls of every measurement.
enum class RowsTo : std::uint8_t {
  owners,   // what the layer needs
  own,      // as many bytes, to memory of the rank itself; the output means nothing
  nowhere,  // tokens as with own, no rows of Linear-2 tiles; the output means nothing
};

}  // namespace xs
