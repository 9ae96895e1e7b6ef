#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

#include "xstage/core/error.hpp"

// JSON on disk: nlohmann-json, with errors that name the file and the field, a schema_version in everything that
// is written, and files that appear whole or not at all.

namespace xs {

using Json = nlohmann::ordered_json;

inline constexpr int kSchemaVersion = 1;

Json new_document(std::string_view kind);

// Parses `text`; `name` says in errors where it came from. Checks schema_version and kind.
Json parse_document(std::string_view text, std::string_view kind, const std::string& name);
Json read_document(const std::filesystem::path& file, std::string_view kind);

// Writes beside the target, then renames.
void write_text(const std::filesystem::path& file, std::string_view text);
void write_document(const std::filesystem::path& file, const Json& document);

std::string read_text(const std::filesystem::path& file);

// object[key] as T, or an error that names `where` and the key.
template <class T>
T field(const Json& object, std::string_view key, const std::string& where) {
  require(object.is_object(), "{}: expected an object that holds \"{}\", found {}", where, key, object.type_name());
  const auto found = object.find(std::string(key));
  require(found != object.end(), "{}: the field \"{}\" is missing", where, key);
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::usage, "{}: the field \"{}\" has the wrong type ({}): {}", where, key, found->type_name(),
         found->dump().substr(0, 60));
  }
}

// A finite number above 0.
double positive_field(const Json& object, std::string_view key, const std::string& where);

}  // namespace xs
