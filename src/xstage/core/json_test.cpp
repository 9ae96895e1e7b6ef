#include "xstage/core/json.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "xstage/core/test_support.hpp"
#include "xstage/core/version.hpp"

namespace xs {
namespace {

using Names = std::vector<std::string>;

TEST(Document, NamesSchemaKindAndWriter) {
  const auto document = new_document("machine_profile");
  EXPECT_EQ(document.at("schema_version"), kSchemaVersion);
  EXPECT_EQ(document.at("kind"), "machine_profile");
  EXPECT_EQ(document.at("xstage"), fmt::format("{} {}", version(), commit()));
}

TEST(Document, ComesBackAsItWasWritten) {
  const TempFolder folder;
  auto document = new_document("test");
  document["values"] = {0.1, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 1.0 / 3};
  document["text"] = "quote \" backslash \\ newline \n \u00fc";
  write_document(folder / "d.json", document);
  EXPECT_EQ(read_document(folder / "d.json", "test"), document);
}

TEST(Document, BytesThatAreNoTextAreReplaced) {
  auto document = new_document("test");
  document["file"] = "caf\xe9.csv";
  EXPECT_EQ(Json::parse(to_text(document)).at("file"), "caf\ufffd.csv");
}

TEST(Document, WrongSchemaKindOrSyntaxIsAnErrorThatNamesTheFile) {
  const auto parse = [](std::string_view text) { parse_document(text, "wanted", "some.json"); };
  const auto refuses = [&](std::string_view text, std::vector<std::string> words) {
    words.push_back("some.json");
    expect_usage_error([&] { parse(text); }, words);
  };
  EXPECT_NO_THROW(parse(R"({"schema_version": 1, "kind": "wanted"})"));
  refuses("", {"not valid JSON"});
  refuses("{\"schema_version\": 1,\n\"kind\": ", {"not valid JSON", "line 2"});
  refuses("{\"schema_version\": 1, \"kind\": \"wanted\"} more", {"not valid JSON"});
  refuses("{\"a\": 1e999}", {"not valid JSON"});
  refuses("[1, 2]", {"expected an object", "schema_version", "array"});
  refuses("{}", {"\"schema_version\" is missing"});
  refuses(R"({"schema_version": "1", "kind": "wanted"})", {"\"schema_version\"", "whole number", "\"1\""});
  refuses(R"({"schema_version": 2, "kind": "wanted"})", {"schema_version 1 expected, 2 found"});
  refuses(R"({"schema_version": 1})", {"\"kind\" is missing"});
  refuses(R"({"schema_version": 1, "kind": 7})", {"\"kind\"", "a string", "7"});
  refuses(R"({"schema_version": 1, "kind": "other"})", {"\"wanted\"", "\"other\""});
  refuses("{\"a\": \"caf\xe9\"}", {"not valid JSON", "UTF-8"});
  refuses("{\"a\": \"\\ud800\"}", {"not valid JSON", "surrogate"});
  refuses(R"({"schema_version": 99999999999999999999, "kind": "wanted"})", {"\"schema_version\"", "whole number"});
}

TEST(Document, AFieldThatStandsTwiceIsRefused) {
  const auto parse = [](std::string_view text) { parse_document(text, "wanted", "some.json"); };
  EXPECT_NO_THROW(
      parse(R"({"schema_version": 1, "kind": "wanted", "a": {"x": 1}, "b": [{"x": 1}, {"x": 2, "a": 3}]})"));
  for (const auto* text : {R"({"schema_version": 1, "kind": "wanted", "x": 1, "x": 1})",
                           R"({"x": 1, "y": [1], "x": 2})", R"({"y": [{"a": 1}, {"x": 1, "z": {}, "x": 2}]})"}) {
    expect_usage_error([&] { parse(text); }, {"some.json", "\"x\"", "twice"});
  }
}

TEST(Document, NestingIsBoundedSoThatNoStackOverflows) {
  const auto nested = [](const std::string& open, const std::string& close, int depth) {
    std::string text = R"({"schema_version": 1, "kind": "wanted", "a": )";
    for (int i = 0; i < depth; ++i) text += open;
    text += "0";
    for (int i = 0; i < depth; ++i) text += close;
    return text + "}";
  };
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"k\":", "}")}) {
    EXPECT_NO_THROW(parse_document(nested(open, close, 63), "wanted", "some.json"));
    for (const int depth : {64, 100000}) {
      expect_usage_error([&] { parse_document(nested(open, close, depth), "wanted", "some.json"); },
                         {"some.json", "nested more than 64 deep"});
    }
  }
  expect_usage_error([] { parse_document(std::string(100000, '['), "wanted", "some.json"); }, {"nested"});
}

TEST(Document, AStringOfMegabytesIsNotRepeatedInTheError) {
  try {
    parse_document("{\"a\": \"" + std::string(3 << 20, 'x'), "wanted", "some.json");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

template <class T>
void expect_field(const char* value, const T& expected) {
  EXPECT_EQ(field<T>(Json{{"key", Json::parse(value)}}, "key", "here"), expected) << value;
}

template <class T>
void expect_no_field(const char* value, const std::string& type) {
  SCOPED_TRACE(value);
  const Json object{{"key", Json::parse(value)}};
  expect_usage_error([&] { field<T>(object, "key", "here"); }, {"here", "\"key\"", type, value});
}

TEST(Field, IsReadAsItsTypeAndNeverConverted) {
  expect_field<bool>("true", true);
  expect_field<int>("-5", -5);
  expect_field<int>("2147483647", 2147483647);
  expect_field<std::int64_t>("9007199254740993", 9007199254740993);
  expect_field<double>("3", 3.0);
  expect_field<double>("0.25", 0.25);
  expect_field<std::string>("\"\"", "");
  expect_field<std::vector<int>>("[]", {});
  expect_field<std::vector<int>>("[1, -2]", {1, -2});

  for (const char* value : {"1.5", "3.0", "true", "\"3\"", "null", "[]", "{}", "2147483648", "-2147483649"}) {
    expect_no_field<int>(value, "whole number");
  }
  expect_no_field<std::int64_t>("9223372036854775808", "whole number");
  for (const char* value : {"true", "\"3\"", "null", "[]", "{}"}) expect_no_field<double>(value, "a number");
  for (const char* value : {"1", "0", "\"true\"", "null"}) expect_no_field<bool>(value, "true or false");
  for (const char* value : {"1", "true", "null", "[]"}) expect_no_field<std::string>(value, "a string");
  for (const char* value : {"1", "{}", "null", "[1.5]", "[true]", "[[1]]", "[4294967296]"}) {
    SCOPED_TRACE(value);
    expect_usage_error(
        [&] {
          field<std::vector<int>>(Json{{"key", Json::parse(value)}}, "key", "here");
        },
        {"here", "\"key\"", "array", "whole number"});
  }
}

TEST(Field, MissingIsNamed) {
  expect_usage_error([] { field<int>(Json::object(), "key", "here"); }, {"here", "\"key\" is missing"});
  expect_usage_error([] { field<int>(Json(3), "key", "here"); }, {"here", "\"key\"", "object", "number"});
}

TEST(Field, BoundsAreKept) {
  const Json object{{"zero", 0}, {"minus", -1}, {"small", 0.5}};
  EXPECT_EQ(field_at_least(0, object, "zero", "here"), 0);
  EXPECT_EQ(positive_field(object, "small", "here"), 0.5);
  expect_usage_error([&] { field_at_least(1, object, "zero", "here"); }, {"here", "\"zero\"", "at least 1", "found 0"});
  expect_usage_error([&] { field_at_least(0.0, object, "minus", "here"); }, {"\"minus\"", "at least 0", "found -1"});
  expect_usage_error([&] { positive_field(object, "zero", "here"); }, {"\"zero\"", "above 0", "found 0"});
}

TEST(WriteText, AppearsWholeAndLeavesNothingElse) {
  const TempFolder folder;
  const std::string text(100000, 'x');
  write_text(folder / "a.txt", text);
  EXPECT_EQ(read_text(folder / "a.txt"), text);
  write_text(folder / "a.txt", "shorter");
  EXPECT_EQ(read_text(folder / "a.txt"), "shorter");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(WriteText, PlaceThatCannotBeIsRefusedInWords) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "sub");
  for (const auto refuse : {+[](const std::filesystem::path& file) { require_writable(file); },
                            +[](const std::filesystem::path& file) { write_text(file, "x"); }}) {
    expect_usage_error([&] { refuse(folder / "none/a.txt"); }, {"none/a.txt", "does not exist", "make it first"});
    expect_usage_error([&] { refuse(folder / "sub"); }, {"sub", "found a folder"});
  }
  EXPECT_NO_THROW(require_writable(folder / "sub/a.txt"));
  EXPECT_EQ(folder.names(), Names{"sub"});
  EXPECT_TRUE(std::filesystem::is_empty(folder / "sub"));
}

// While it lives, no file can grow beyond `bytes`: a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(WriteText, FailureLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  folder.write("old.txt", "precious");
  {
    const FullDisk disk(1000);
    expect_usage_error([&] { write_text(folder / "old.txt", std::string(5000, 'x')); },
                       {"old.txt", "cannot be written", "space"});
    expect_usage_error([&] { write_text(folder / "new.txt", std::string(5000, 'x')); }, {"new.txt"});
  }
  EXPECT_EQ(read_text(folder / "old.txt"), "precious");
  EXPECT_EQ(folder.names(), Names{"old.txt"});
}

TEST(WriteText, WritesThroughLinks) {
  const TempFolder folder;
  folder.write("target.txt", "old");
  std::filesystem::create_symlink("target.txt", folder / "link.txt");
  write_text(folder / "link.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.txt"));
  EXPECT_EQ(read_text(folder / "target.txt"), "new");
  EXPECT_EQ(folder.names(), (Names{"link.txt", "target.txt"}));
}

// Writing to /dev/null as root must not replace the device by a file. (A pipe stands in for it: a test that fails
// must not take the machine's /dev/null with it.)
TEST(WriteText, PipesAndDevicesAreWrittenInPlace) {
  const TempFolder folder;
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_text(pipe, "through");
  char text[16] = {};
  const auto count = ::read(reader, text, sizeof text);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(std::string(text, count > 0 ? static_cast<std::size_t>(count) : 0), "through");
  EXPECT_EQ(folder.names(), Names{"pipe"});
}

TEST(ReadText, MissingFilesAndFoldersAreNamed) {
  const TempFolder folder;
  expect_usage_error([&] { read_text(folder / "none"); }, {"none", "no such file"});
  expect_usage_error([&] { read_text(folder / "."); }, {"found a folder"});
}

}  // namespace
}  // namespace xs
