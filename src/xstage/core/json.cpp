#include "xstage/core/json.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <unordered_set>

#include "xstage/core/version.hpp"

namespace xs {

Json new_document(std::string_view kind) {
  return {{"schema_version", kSchemaVersion}, {"kind", kind}, {"xstage", fmt::format("{} {}", version(), commit())}};
}

namespace {

// Called by the parser at each event. Depth is bounded because copies, comparisons and output of a value recurse.
class DocumentRules {
 public:
  explicit DocumentRules(const std::string& name) : name_(name) {}

  void see(int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      require(keys_.back().insert(key).second, "{}: the field \"{}\" stands twice in one object; remove one", name_,
              excerpt(key));
    } else if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      require(depth < kMostDepth,
              "{}: objects and arrays are nested more than {} deep; is this file of another program?", name_,
              kMostDepth);
      keys_.emplace_back();
    } else if (event != Json::parse_event_t::value) {
      keys_.pop_back();
    }
  }

 private:
  static constexpr int kMostDepth = 64;
  const std::string& name_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each object or array that is open
};

}  // namespace

Json parse_document(std::string_view text, std::string_view kind, const std::string& name) {
  Json document;
  DocumentRules rules(name);
  try {
    document = Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& value) {
      rules.see(depth, event, value);
      return true;
    });
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::usage, "{}: not valid JSON: {}", name, excerpt(error.what(), 400));
  }
  const int found = field<int>(document, "schema_version", name);
  require(found == kSchemaVersion, "{}: schema_version {} expected, {} found; write the file again with this version",
          name, kSchemaVersion, found);
  const auto found_kind = field<std::string>(document, "kind", name);
  require(found_kind == kind, "{}: expected a file of kind \"{}\", found \"{}\"", name, kind, excerpt(found_kind));
  return document;
}

std::string read_text(const std::filesystem::path& file) {
  require(std::filesystem::exists(file), "{}: no such file", file.string());
  require(!std::filesystem::is_directory(file), "{}: expected a file, found a folder", file.string());
  std::ifstream stream(file, std::ios::binary);
  require(stream.good(), "{}: cannot be read; check its permissions", file.string());
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

Json read_document(const std::filesystem::path& file, std::string_view kind) {
  return parse_document(read_text(file), kind, file.string());
}

std::string to_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void require_writable(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  require(std::filesystem::is_directory(folder), "{}: the folder {} does not exist; make it first", file.string(),
          folder.string());
  require(!std::filesystem::is_directory(file), "{}: expected the name of a file, found a folder", file.string());
}

void write_text(const std::filesystem::path& file, std::string_view text) {
  require_writable(file);
  const auto target = std::filesystem::weakly_canonical(file);
  const bool in_place = std::filesystem::exists(target) && !std::filesystem::is_regular_file(target);
  const auto partial =
      in_place ? target : target.parent_path() / fmt::format(".{}.{}", target.filename().string(), ::getpid());
  std::ofstream stream(partial, std::ios::binary);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  stream.close();
  std::error_code error;
  if (stream.good() && !in_place) std::filesystem::rename(partial, target, error);
  if (stream.good() && !error) return;
  if (!in_place) std::filesystem::remove(partial, error);
  fail(ErrorKind::usage, "{}: cannot be written; check permissions and free space", file.string());
}

void write_document(const std::filesystem::path& file, const Json& document) { write_text(file, to_text(document)); }

double positive_field(const Json& object, std::string_view key, const std::string& where) {
  const auto value = field<double>(object, key, where);
  require(value > 0, "{}: the field \"{}\" must be a number above 0, found {}", where, key, value);
  return value;
}

}  // namespace xs
