#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

// For the fuzz programs, one per file format (*_fuzz.cpp, libFuzzer). Each defines the two functions below. A usage
// error is a good answer to any input; everything else that is thrown, and whatever a sanitizer says, is a finding.

namespace xs {

// Valid files to start from, made by the program's own writers or cut from data/ and profiles/.
std::vector<std::string> fuzz_seeds();

// Reads `input`, and checks the laws of what was accepted.
void fuzz_one(std::string_view input);

// What the call returns, or nothing if it refused the input.
template <class Call>
auto if_accepted(Call&& call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    check(std::string_view(error.what()).size() < 2000, "an error of {} bytes that nobody can read",
          std::string_view(error.what()).size());
    return std::nullopt;
  }
}

inline std::string first_lines(const std::string& file, std::size_t count) {
  const auto text = read_text(std::string(XSTAGE_SOURCE_DIR "/") + file);
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end);
}

}  // namespace xs

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xs::fuzz_one({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Writes the seeds into the first folder of the command line: the corpus, which libFuzzer reads next.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path folder = (*argv)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    int number = 0;
    for (const auto& seed : xs::fuzz_seeds()) xs::write_text(folder / fmt::format("seed{}", number++), seed);
    break;
  }
  return 0;
}
