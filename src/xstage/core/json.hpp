#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/core/json_fwd.hpp"

// JSON on disk: nlohmann-json, with errors that name the file and the field, a schema_version in everything that
// is written, and files that appear whole or not at all.

namespace xs {

inline constexpr int kSchemaVersion = 1;

Json new_document(std::string_view kind);

// Parses `text`; `name` says in errors where it came from. Checks schema_version and kind. Refuses a field that stands
// twice in one object, and nesting more than 64 deep.
Json parse_document(std::string_view text, std::string_view kind, const std::string& name);
Json read_document(const std::filesystem::path& file, std::string_view kind);

// The text of a document, as write_document writes it. Bytes that are no UTF-8 (of a file's name, say) are replaced.
std::string to_text(const Json& document);

// Writes beside the target, then renames; through links to what they name. Devices and pipes are written in place.
void write_text(const std::filesystem::path& file, std::string_view text);
void write_document(const std::filesystem::path& file, const Json& document);
// Before long work: throws where write_text must fail, without touching anything.
void require_writable(const std::filesystem::path& file);

std::string read_text(const std::filesystem::path& file);

// Types that a field can be read as: what to call one, and whether a value is one as it stands. (nlohmann-json's own
// conversions turn 8.5 into 8 and true into 1, and wrap what does not fit.)
template <class T>
struct FieldType;

template <>
struct FieldType<Json> {
  static std::string name() { return "a value"; }
  static bool holds(const Json&) { return true; }
};
template <>
struct FieldType<bool> {
  static std::string name() { return "true or false"; }
  static bool holds(const Json& value) { return value.is_boolean(); }
};
template <>
struct FieldType<std::string> {
  static std::string name() { return "a string"; }
  static bool holds(const Json& value) { return value.is_string(); }
};
template <>
struct FieldType<double> {
  static std::string name() { return "a number"; }
  static bool holds(const Json& value) { return value.is_number(); }
};
template <std::integral T>
struct FieldType<T> {
  static std::string name() {
    return fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  static bool holds(const Json& value) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.get<std::uint64_t>());
    return value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
  }
};
template <class T>
struct FieldType<std::vector<T>> {
  static std::string name() { return "an array, each element " + FieldType<T>::name(); }
  static bool holds(const Json& value) { return value.is_array() && std::ranges::all_of(value, &FieldType<T>::holds); }
};

// object[key] as T, or an error that names `where` and the key.
template <class T>
T field(const Json& object, std::string_view key, const std::string& where) {
  require(object.is_object(), "{}: expected an object that holds \"{}\", found {}", where, key, object.type_name());
  const auto found = object.find(std::string(key));
  require(found != object.end(), "{}: the field \"{}\" is missing", where, key);
  if (!FieldType<T>::holds(*found)) {
    fail(ErrorKind::usage, "{}: the field \"{}\" must be {}, found {}", where, key, FieldType<T>::name(),
         excerpt(found->dump()));
  }
  return found->template get<T>();
}

template <class T>
T field_at_least(T least, const Json& object, std::string_view key, const std::string& where) {
  const T value = field<T>(object, key, where);
  require(value >= least, "{}: the field \"{}\" must be at least {}, found {}", where, key, least, value);
  return value;
}

// A number above 0.
double positive_field(const Json& object, std::string_view key, const std::string& where);

}  // namespace xs
