#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"

// For the tests of every layer: errors in words, files that go away again, random parameters.

namespace xs {

// Builds with a sanitizer are about ten times slower: tests that repeat do less there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlower = 10;
#else
inline constexpr int kSlower = 1;
#endif

// The call fails with this kind of error, and its text says all of `words`.
template <class Call>
void expect_error(ErrorKind kind, Call&& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one about " << fmt::format("{}", fmt::join(words, ", "));
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), kind) << text;
    for (const auto& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "\nlacks: " << word;
  }
}

// The caller's mistake.
template <class Call>
void expect_usage_error(Call&& call, const std::vector<std::string>& words) {
  expect_error(ErrorKind::usage, std::forward<Call>(call), words);
}

// A folder of its own, removed with all it holds.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "xstage.XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "no temporary folder {}", name);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  std::string read(const std::string& name) const {
    std::ifstream stream(path_ / name, std::ios::binary);
    EXPECT_TRUE(stream.good()) << name << " is not there";
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // Names of what it holds, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
  }

 private:
  std::filesystem::path path_;
};

// Random parameters, the same in every run; every call gives the next one.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{seed, 0} {}
  double between(double low, double high) { return low + (high - low) * key_.uniform(next_++); }
  // Spread evenly over the decades.
  double over_decades(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
  int whole(int low, int high) { return low + static_cast<int>(key_.below(next_++, high - low + 1)); }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

}  // namespace xs
