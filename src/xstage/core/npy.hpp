#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// Dense arrays in NumPy's .npy format 1.0 and 2.0 (numpy.lib.format), little-endian, C order. Pickled objects are
// refused. Floats of 4 and 8 bytes read as float, integers of 4 and 8 bytes as int64; NaN and infinity are errors.

namespace xs {

template <class T>
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<T> values;  // row-major
};

Array<float> read_npy_floats(const std::filesystem::path& file);
Array<std::int64_t> read_npy_integers(const std::filesystem::path& file);
void write_npy(const std::filesystem::path& file, const Array<float>& array);
void write_npy(const std::filesystem::path& file, const Array<std::int64_t>& array);

}  // namespace xs
