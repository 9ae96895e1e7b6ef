#include "xstage/core/fuzz_support.hpp"
#include "xstage/core/npy.hpp"

namespace xs {
namespace {

template <class T>
void check_round_trip(const Array<T>& array, Array<T> (*parse)(std::string_view, const std::string&)) {
  std::size_t count = 1;
  for (const auto extent : array.shape) count *= static_cast<std::size_t>(extent);
  check(array.values.size() == count, "{} values in a shape of {}", array.values.size(), count);
  const auto again = parse(to_npy(array), "again.npy");
  check(again.shape == array.shape && again.values == array.values, "another array when written and read again");
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const auto format2 = [](const std::string& header, const std::string& values) {
    return std::string("\x93NUMPY\x02\x00", 8) + static_cast<char>(header.size()) + std::string(3, '\0') + header +
           values;
  };
  return {to_npy(Array<float>{{3}, {1.0f, -2.5f, 3.25f}}), to_npy(Array<std::int64_t>{{2, 1, 2}, {1, -2, 3, 4}}),
          to_npy(Array<float>{{0, 7}, {}}),
          format2("{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", std::string(8, '\0')),
          format2("{\"shape\":(2,),\"fortran_order\":True,\"descr\":'<i4'}", std::string(8, '\1'))};
}

void fuzz_one(std::string_view input) {
  const auto floats = if_accepted([&] { return parse_npy_floats(input, "fuzz.npy"); });
  if (floats) check_round_trip(*floats, &parse_npy_floats);
  const auto integers = if_accepted([&] { return parse_npy_integers(input, "fuzz.npy"); });
  if (integers) check_round_trip(*integers, &parse_npy_integers);
}

}  // namespace xs
