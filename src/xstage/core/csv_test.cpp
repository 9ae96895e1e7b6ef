#include "xstage/core/csv.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

Csv parse(std::string text) { return Csv::parse(std::move(text), "some.csv"); }

TEST(Csv, ReadsCommentsHeaderAndRows) {
  const auto csv = parse("# NVIDIA H200 sm=132\n#second\nname,bytes,time\na,4096,1.5\nb,8192,2e3\n");
  ASSERT_EQ(csv.comments().size(), 2u);
  EXPECT_EQ(csv.comments()[0], "NVIDIA H200 sm=132");
  EXPECT_EQ(csv.comments()[1], "second");
  ASSERT_EQ(csv.num_rows(), 2u);
  EXPECT_EQ(csv.text(0, csv.column("name")), "a");
  EXPECT_EQ(csv.integer(1, csv.column("bytes"), 1), 8192);
  EXPECT_EQ(csv.number(0, csv.column("time"), 0), 1.5);
  EXPECT_EQ(csv.number(1, csv.column("time"), 0), 2000.0);
  EXPECT_TRUE(csv.has("bytes"));
  EXPECT_FALSE(csv.has("byte"));
  EXPECT_EQ(csv.where(1), "some.csv:5");
}

TEST(Csv, BlanksEmptyLinesAndLineEndsDoNotMatter) {
  for (const char* text : {"a,b\n1,2", "a,b\r\n1,2\r\n", "\n a , b \n\n 1 ,\t2 \n\n", "a,b\n# between\n1,2\n"}) {
    SCOPED_TRACE(text);
    const auto csv = parse(text);
    ASSERT_EQ(csv.num_rows(), 1u);
    EXPECT_EQ(csv.integer(0, csv.column("a"), 0), 1);
    EXPECT_EQ(csv.integer(0, csv.column("b"), 0), 2);
  }
}

TEST(Csv, EmptyCellsAreText) {
  const auto csv = parse("a,b,c\n,2,\n");
  EXPECT_EQ(csv.text(0, 0), "");
  EXPECT_EQ(csv.text(0, 2), "");
}

TEST(Csv, CellsSurviveAMove) {
  // So short that std::string would keep it inside itself.
  auto source = parse("a\n1\n");
  const Csv moved = std::move(source);
  EXPECT_EQ(moved.text(0, 0), "1");
}

TEST(Csv, ReadsWhatIsOnDisk) {
  const TempFolder folder;
  const auto csv = Csv::read(folder.write("one.csv", "a\n7\n"));
  EXPECT_EQ(csv.integer(0, 0, 0), 7);
  EXPECT_EQ(csv.where(0), (folder / "one.csv").string() + ":2");
  expect_usage_error([&] { Csv::read(folder / "none.csv"); }, {"none.csv", "no such file"});
  expect_usage_error([&] { Csv::read(folder / "."); }, {"expected a file, found a folder"});
}

TEST(Csv, FileWithoutHeaderOrRowsIsAnError) {
  for (const char* text : {"", "\n\n", "# only a comment\n"}) {
    expect_usage_error([&] { parse(text); }, {"some.csv", "header", "empty"});
  }
  expect_usage_error([&] { parse("# c\na,b\n"); }, {"some.csv", "rows below the header"});
}

TEST(Csv, CutRowIsNamedByFileAndLine) {
  const std::string whole = "# c\na,b,c\n1,2,3\n4,5,6\n";
  EXPECT_EQ(parse(whole).num_rows(), 2u);
  expect_usage_error([&] { parse(whole.substr(0, whole.size() - 3)); }, {"some.csv:4", "3 cells", "found 2", "cut"});
  expect_usage_error([&] { parse("a,b\n1,2,3\n"); }, {"some.csv:2", "2 cells", "found 3"});
}

TEST(Csv, AByteOrderMarkIsNoPartOfTheFirstName) {
  const auto csv = parse("\xef\xbb\xbfid,b\r\n1,2");
  EXPECT_EQ(csv.integer(0, csv.column("id"), 0), 1);
  EXPECT_EQ(parse("\xef\xbb\xbf# chip\nid\n1\n").comments().at(0), "chip");
}

TEST(Csv, WhatIsNoPlainTableIsNamedByLine) {
  expect_usage_error([] { parse(std::string("a,b\n1,\0002\n", 9)); }, {"some.csv:2", "NUL", "UTF-8"});
  expect_usage_error([] { parse(std::string("\xff\xfe\x61\0\x0a\0", 6)); }, {"some.csv:1", "NUL", "UTF-16"});
  expect_usage_error([] { parse("# \"fine here\"\na,b\n1,2\n\"3,4\",5\n"); }, {"some.csv:4", "quoted"});
  expect_usage_error([] { parse("# c\na,b,a\n1,2,3\n"); }, {"some.csv:2", "\"a\"", "twice"});
}

TEST(Csv, MegabytesWithoutABreakAreReadAndNotRepeatedInErrors) {
  const std::string cell(3 << 20, 'x');
  const auto csv = parse(cell + ",b\n" + cell + ",1\n");
  EXPECT_EQ(csv.text(0, 0), cell);
  const auto expect_short = [&](auto&& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 1000u);
    }
  };
  expect_short([&] { csv.number(0, 0, 0); });
  expect_short([&] { csv.integer(0, 0, 0); });
  expect_short([&] { csv.column("c"); });
}

TEST(Csv, MissingColumnIsNamedWithThoseThatAreThere) {
  const auto csv = parse("path,dst\nst16,host\n");
  expect_usage_error([&] { csv.column("ctas"); }, {"some.csv", "\"ctas\"", "path, dst"});
}

TEST(Csv, CellThatIsNoSuchNumberIsNamedByFileLineAndColumn) {
  for (const std::string cell : {"", "x", "1x", "nan", "inf", "-inf", "1e999", "0x10", "--1", "-3", "1 2"}) {
    SCOPED_TRACE(cell);
    const auto csv = parse("# c\nok,bad\n1," + cell + "\n");
    const std::vector<std::string> words{"some.csv:3", "\"bad\"", "at least 0", "\"" + cell + "\""};
    expect_usage_error([&] { csv.number(0, 1, 0); }, words);
    expect_usage_error([&] { csv.integer(0, 1, 0); }, words);
  }
}

TEST(Csv, WholeNumbersAreNeitherRoundedNorWrapped) {
  const auto csv = parse("a,b,c\n1.5,99999999999999999999,12\n");
  expect_usage_error([&] { csv.integer(0, 0, 0); }, {"\"a\"", "whole number", "1.5"});
  expect_usage_error([&] { csv.integer(0, 1, 0); }, {"\"b\"", "99999999999999999999"});
  EXPECT_EQ(csv.integer(0, 2, 12, 12), 12);
  EXPECT_EQ(csv.number(0, 2, 12, 12), 12.0);
  expect_usage_error([&] { csv.number(0, 2, 0, 11.5); }, {"some.csv:2", "\"c\"", "at most 11.5", "found 12"});
  expect_usage_error([&] { csv.integer(0, 2, 13); }, {"some.csv:2", "\"c\"", "at least 13"});
  expect_usage_error([&] { csv.integer(0, 2, 0, 11); }, {"some.csv:2", "\"c\"", "at most 11", "found 12"});
}

}  // namespace
}  // namespace xs
