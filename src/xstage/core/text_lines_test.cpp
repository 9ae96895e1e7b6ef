#include "xstage/core/text_lines.hpp"

#include <gtest/gtest.h>

namespace xs {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

TEST(DifferingLines, ArePairedByTheirPlace) {
  EXPECT_EQ(differing_lines("a\nb\nc\n", "a\nB\nc\n"), (Lines{{"b", "B"}}));
  EXPECT_EQ(differing_lines("a\nb\n", "b\na\n"), (Lines{{"a", "b"}, {"b", "a"}}));
}

TEST(DifferingLines, WhatIsMissingIsNothing) {
  EXPECT_EQ(differing_lines("a\nb\n", "a\n"), (Lines{{"b", "nothing"}}));
  EXPECT_EQ(differing_lines("", "a\nb"), (Lines{{"nothing", "a"}, {"nothing", "b"}}));
}

TEST(DifferingLines, EqualTextsHaveNone) {
  EXPECT_TRUE(differing_lines("", "").empty());
  EXPECT_TRUE(differing_lines("a\nb\n", "a\nb\n").empty());
}

}  // namespace
}  // namespace xs
