#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// Dense arrays in NumPy's .npy format 1 to 3 (numpy.lib.format), little-endian, C order. Pickled objects are refused,
// and the header is read as a literal, never evaluated. Floats of 4 and 8 bytes read as float, integers of 4 and 8
// bytes as int64; NaN and infinity are errors. Nothing is allocated before the shape has been held against the file's
// size.

namespace xs {

template <class T>
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<T> values;  // row-major
};

// `name` says in errors where the bytes came from.
Array<float> parse_npy_floats(std::string_view bytes, const std::string& name);
Array<std::int64_t> parse_npy_integers(std::string_view bytes, const std::string& name);
Array<float> read_npy_floats(const std::filesystem::path& file);
Array<std::int64_t> read_npy_integers(const std::filesystem::path& file);

// The bytes of a file, as write_npy writes it.
std::string to_npy(const Array<float>& array);
std::string to_npy(const Array<std::int64_t>& array);
void write_npy(const std::filesystem::path& file, const Array<float>& array);
void write_npy(const std::filesystem::path& file, const Array<std::int64_t>& array);

}  // namespace xs
