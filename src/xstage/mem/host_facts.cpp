#include "xstage/mem/host_facts.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "xstage/core/error.hpp"

namespace xs {

SharedSpace shared_space() {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0) {
    fail(ErrorKind::unavailable, "processes share memory through /dev/shm, which is not there: {}",
         std::strerror(errno));
  }
  return {std::uint64_t{shm.f_blocks} * shm.f_frsize, std::uint64_t{shm.f_bavail} * shm.f_frsize};
}

std::optional<std::uint64_t> lockable_bytes() {
  rlimit limit{};
  check(::getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "the limit of locked memory: {}", std::strerror(errno));
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string driver_version(const std::filesystem::path& folder) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  …": the first word that begins with a digit.
  std::ifstream file(folder / "version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return word;
  }
  return "";
}

std::string name_of_a_gpu(const std::filesystem::path& folder) {
  std::error_code none;
  for (const auto& gpu : std::filesystem::directory_iterator(folder / "gpus", none)) {
    std::ifstream information(gpu.path() / "information");
    constexpr std::string_view kModel = "Model:";
    for (std::string line; std::getline(information, line);) {
      if (!line.starts_with(kModel)) continue;
      const auto name = line.find_first_not_of(" \t", kModel.size());
      return name == std::string::npos ? "" : line.substr(name);
    }
  }
  return "";
}

}  // namespace xs
