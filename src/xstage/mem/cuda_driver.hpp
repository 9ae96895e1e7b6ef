#pragma once

namespace xs {

// The driver's function of that name, as CUDA 12.0 has it. Looked up when it is needed, because a program that is
// linked to the driver's library starts only where there is one. Throws Error(unavailable) when the driver is too old.
void* find_driver_function(const char* name);

// Function: a PFN_... type of cudaTypedefs.h.
template <class Function>
Function driver_function(const char* name) {
  return reinterpret_cast<Function>(find_driver_function(name));
}

}  // namespace xs
