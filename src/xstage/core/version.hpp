#pragma once

namespace xs {

const char* version();   // "0.1.0"
const char* commit();    // git describe of the sources, "unknown" outside a checkout
const char* built_in();  // optional parts of this build, separated by blanks

}  // namespace xs
