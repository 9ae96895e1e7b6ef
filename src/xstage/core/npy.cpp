#include "xstage/core/npy.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

// What the header says: a Python dictionary literal with exactly these three keys.
struct Header {
  std::string dtype;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view header, const std::string& name) : rest_(header), name_(name) {}

  Header parse() {
    Header header;
    std::vector<std::string_view> keys;
    expect('{', "a dictionary");
    while (!accept('}')) {
      const auto key = quoted("a quoted key");
      require(std::ranges::find(keys, key) == keys.end(), "{}: the npy header holds '{}' twice", name_, excerpt(key));
      keys.push_back(key);
      expect(':', "a colon after each key");
      if (key == "descr") {
        header.dtype = dtype();
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = shape();
      } else {
        fail(ErrorKind::usage, "{}: the npy header holds an unknown key '{}'", name_, excerpt(key));
      }
      if (!accept(',') && rest().front() != '}') expect(',', "a comma between its entries");
    }
    require(rest_.find_first_not_of(" \n") == std::string_view::npos, "{}: the npy header goes on behind its end",
            name_);
    for (const std::string_view key : {"descr", "fortran_order", "shape"}) {
      require(std::ranges::find(keys, key) != keys.end(), "{}: the npy header lacks '{}'", name_, key);
    }
    return header;
  }

 private:
  // From the next character that is no blank; never empty, a NUL stands for the end.
  std::string_view rest() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_.empty() ? std::string_view("\0", 1) : rest_;
  }
  bool accept(char wanted) {
    if (rest().front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool accept(std::string_view wanted) {
    if (!rest().starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }
  void expect(char wanted, const char* what) {
    require(accept(wanted), "{}: the npy header should hold {}, found \"{}\"; save the array again with np.save", name_,
            what, excerpt(rest_, 20));
  }
  std::string_view quoted(const char* what) {
    const char quote = rest().front() == '"' ? '"' : '\'';
    expect(quote, what);
    const auto text = rest_.substr(0, rest_.find(quote));
    rest_.remove_prefix(text.size());
    expect(quote, "a closing quote");
    return text;
  }
  std::string dtype() {
    require(rest().front() != '[', "{}: a plain dtype is expected; structured arrays cannot be read", name_);
    return std::string(quoted("a quoted dtype"));
  }
  bool boolean() {
    if (accept("True")) return true;
    require(accept("False"), "{}: the npy header's fortran_order should be True or False", name_);
    return false;
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    bool valid = accept('(');
    while (valid && !accept(')')) {
      std::int64_t extent = 0;
      const auto text = rest();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
      valid = error == std::errc() && extent >= 0 && extents.size() < 8;
      if (!valid) break;
      rest_.remove_prefix(static_cast<std::size_t>(end - text.data()));
      extents.push_back(extent);
      valid = accept(',') || rest().front() == ')';
    }
    require(valid, "{}: the npy header has no valid shape; up to 8 extents of at least 0 are expected", name_);
    return extents;
  }

  std::string_view rest_;
  const std::string& name_;
};

struct Npy {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t num_values = 1;
  std::string_view values;  // the bytes behind the header
};

Npy parse_npy(std::string_view bytes, const std::string& name) {
  require(bytes.starts_with(kMagic) && bytes.size() >= 12, "{}: not an npy file (its first bytes differ)", name);
  const int major = static_cast<unsigned char>(bytes[6]);
  require(major >= 1 && major <= 3, "{}: npy format 1, 2 or 3 expected, {} found", name, major);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  std::uint32_t header_length = 0;
  std::memcpy(&header_length, bytes.data() + 8, length_bytes);
  bytes.remove_prefix(8 + length_bytes);
  require(header_length <= bytes.size(), "{}: the npy header is cut off; copy the file again", name);
  auto header = HeaderParser(bytes.substr(0, header_length), name).parse();

  require(header.dtype.find('O') == std::string::npos,
          "{}: pickled objects are refused; save numbers with np.save(file, x.astype(np.float32), allow_pickle=False)",
          name);
  require(!header.fortran_order, "{}: C order expected, Fortran order found; save numpy.ascontiguousarray(x)", name);
  Npy npy{std::move(header.dtype), std::move(header.shape), 1, bytes.substr(header_length)};
  std::size_t bound = 1;  // of the extents above 0, so that no product of some of them overflows either
  for (const auto extent : npy.shape) {
    const auto factor = static_cast<std::size_t>(extent);
    require(factor == 0 || bound <= (std::size_t{1} << 48) / factor, "{}: the npy shape is too large", name);
    bound *= std::max<std::size_t>(factor, 1);
    npy.num_values *= factor;
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
      fail(ErrorKind::usage, "{}: dtype {} expected, {} found; convert with x.astype(...)", name, expected,
           excerpt(npy.dtype, 20));
    }
  }
  const auto expected_bytes = npy.num_values * sizeof(Stored);
  require(npy.values.size() == expected_bytes, "{}: expected {} bytes of values, found {}; is the file cut?", name,
          expected_bytes, npy.values.size());
  std::vector<To> values(npy.num_values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, npy.values.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<To>(stored);
    if constexpr (std::is_floating_point_v<To>) {
      require(std::isfinite(values[i]), "{}: value {} is {}; finite values expected", name, i, values[i]);
    }
  }
  return values;
}

std::string file_of(std::string_view dtype, const std::vector<std::int64_t>& shape, std::string_view values) {
  std::string extents;
  for (const auto extent : shape) extents += fmt::format("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  auto header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", dtype, extents);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;
  text += values;
  return text;
}

template <class T>
std::string_view as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

Array<float> parse_npy_floats(std::string_view bytes, const std::string& name) {
  auto npy = parse_npy(bytes, name);
  auto values = values_as<float, float, double>(npy, name, "float32 (<f4) or float64 (<f8)", "<f4,<f8");
  return {std::move(npy.shape), std::move(values)};
}

Array<std::int64_t> parse_npy_integers(std::string_view bytes, const std::string& name) {
  auto npy = parse_npy(bytes, name);
  auto values = values_as<std::int64_t, std::int32_t, std::int64_t>(npy, name, "int32 (<i4) or int64 (<i8)", "<i4,<i8");
  return {std::move(npy.shape), std::move(values)};
}

Array<float> read_npy_floats(const std::filesystem::path& file) {
  return parse_npy_floats(read_text(file), file.string());
}

Array<std::int64_t> read_npy_integers(const std::filesystem::path& file) {
  return parse_npy_integers(read_text(file), file.string());
}

std::string to_npy(const Array<float>& array) { return file_of("<f4", array.shape, as_bytes(array.values)); }

std::string to_npy(const Array<std::int64_t>& array) { return file_of("<i8", array.shape, as_bytes(array.values)); }

void write_npy(const std::filesystem::path& file, const Array<float>& array) { write_text(file, to_npy(array)); }

void write_npy(const std::filesystem::path& file, const Array<std::int64_t>& array) { write_text(file, to_npy(array)); }

}  // namespace xs
