#include "xstage/core/npy.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

struct Npy {
  std::string text;  // the whole file
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t data = 0;  // where the values begin
  std::int64_t num_values = 1;
};

// The text after `'key':` in the header's dictionary literal.
std::string_view header_value(std::string_view header, std::string_view key, const std::string& name) {
  const auto quoted = fmt::format("'{}':", key);
  const auto found = header.find(quoted);
  require(found != std::string_view::npos, "{}: the npy header lacks '{}'", name, key);
  auto value = header.substr(found + quoted.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::vector<std::int64_t> parse_shape(std::string_view text, const std::string& name) {
  const auto close = text.find(')');
  require(text.starts_with('(') && close != std::string_view::npos, "{}: the npy header has no valid shape", name);
  text = text.substr(1, close - 1);
  std::vector<std::int64_t> shape;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return shape;
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    require(error == std::errc() && extent >= 0 && shape.size() < 8, "{}: the npy header has no valid shape", name);
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

Npy read_npy(const std::filesystem::path& file) {
  const auto name = file.string();
  Npy npy;
  npy.text = read_text(file);
  const std::string_view text = npy.text;
  require(text.starts_with(kMagic) && text.size() >= 12, "{}: not an npy file (its first bytes differ)", name);
  const int major = static_cast<unsigned char>(text[6]);
  require(major == 1 || major == 2, "{}: npy format 1 or 2 expected, {} found", name, major);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  std::uint32_t header_length = 0;
  std::memcpy(&header_length, text.data() + 8, length_bytes);
  npy.data = 8 + length_bytes + header_length;
  require(npy.data <= text.size(), "{}: the npy header is cut off; copy the file again", name);
  const auto header = text.substr(8 + length_bytes, header_length);

  const auto dtype = header_value(header, "descr", name);
  const auto quote = dtype.find('\'', 1);
  require(dtype.starts_with('\'') && quote != std::string_view::npos,
          "{}: a plain dtype is expected; structured arrays cannot be read", name);
  npy.dtype = dtype.substr(1, quote - 1);
  require(npy.dtype.find('O') == std::string::npos, "{}: pickled objects are refused; save a plain array", name);
  require(header_value(header, "fortran_order", name).starts_with("False"),
          "{}: C order expected, Fortran order found; save numpy.ascontiguousarray(x)", name);
  npy.shape = parse_shape(header_value(header, "shape", name), name);
  for (const auto extent : npy.shape) {
    require(extent == 0 || npy.num_values <= (std::int64_t{1} << 48) / extent, "{}: the npy shape is too large", name);
    npy.num_values *= extent;
  }
  return npy;
}

// The values as To, from the first of `Stored` whose dtype name matches.
template <class To, class Stored, class... More>
std::vector<To> values_as(const Npy& npy, const std::string& name, std::string_view expected, std::string_view dtypes) {
  const auto dtype = dtypes.substr(0, 3);
  if (npy.dtype != dtype) {
    if constexpr (sizeof...(More) > 0) {
      return values_as<To, More...>(npy, name, expected, dtypes.substr(4));
    } else {
      fail(ErrorKind::usage, "{}: dtype {} expected, {} found; convert with x.astype(...)", name, expected, npy.dtype);
    }
  }
  const auto count = static_cast<std::size_t>(npy.num_values);
  const auto found = npy.text.size() - npy.data;
  require(found == count * sizeof(Stored), "{}: expected {} bytes of values, found {}; is the file cut?", name,
          count * sizeof(Stored), found);
  std::vector<To> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, npy.text.data() + npy.data + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<To>(stored);
    if constexpr (std::is_floating_point_v<To>) {
      require(std::isfinite(values[i]), "{}: value {} is {}; finite values expected", name, i, values[i]);
    }
  }
  return values;
}

void write_values(const std::filesystem::path& file, std::string_view dtype, const std::vector<std::int64_t>& shape,
                  std::string_view bytes) {
  std::string extents;
  for (const auto extent : shape) extents += fmt::format("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  auto header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", dtype, extents);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;
  text += bytes;
  write_text(file, text);
}

template <class T>
std::string_view as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

Array<float> read_npy_floats(const std::filesystem::path& file) {
  auto npy = read_npy(file);
  auto values = values_as<float, float, double>(npy, file.string(), "float32 (<f4) or float64 (<f8)", "<f4,<f8");
  return {std::move(npy.shape), std::move(values)};
}

Array<std::int64_t> read_npy_integers(const std::filesystem::path& file) {
  auto npy = read_npy(file);
  auto values =
      values_as<std::int64_t, std::int32_t, std::int64_t>(npy, file.string(), "int32 (<i4) or int64 (<i8)", "<i4,<i8");
  return {std::move(npy.shape), std::move(values)};
}

void write_npy(const std::filesystem::path& file, const Array<float>& array) {
  write_values(file, "<f4", array.shape, as_bytes(array.values));
}

void write_npy(const std::filesystem::path& file, const Array<std::int64_t>& array) {
  write_values(file, "<i8", array.shape, as_bytes(array.values));
}

}  // namespace xs
