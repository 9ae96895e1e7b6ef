#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

// What the operating system says about this machine, with and without CUDA in the build.

namespace xs {

// Of /dev/shm, through which processes share memory. Throws Error(unavailable) where it is not there.
struct SharedSpace {
  std::uint64_t bytes;  // 0: no limit
  std::uint64_t free_bytes;
};
SharedSpace shared_space();

// How much memory a process may lock; none: no limit.
std::optional<std::uint64_t> lockable_bytes();

// What the NVIDIA driver writes about itself; empty without one. `folder` is for tests.
std::string driver_version(const std::filesystem::path& folder = "/proc/driver/nvidia");  // "580.159.04"
std::string name_of_a_gpu(const std::filesystem::path& folder = "/proc/driver/nvidia");   // "NVIDIA H200"

}  // namespace xs
