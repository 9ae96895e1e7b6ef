#include "xstage/core/npy.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

using Shape = std::vector<std::int64_t>;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A file as NumPy writes it.
std::string npy_text(const std::string& header, const std::string& data, char major = 1) {
  std::string padded = header;
  const std::size_t before = major == 1 ? 10 : 12;
  padded.resize((before + padded.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  padded += '\n';
  std::string text("\x93NUMPY");
  text += {major, '\0', static_cast<char>(padded.size() & 0xff), static_cast<char>(padded.size() >> 8)};
  if (major != 1) text += std::string(2, '\0');
  return text + padded + data;
}

std::string header(const std::string& dtype, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + dtype + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

const std::string kThreeFloats = bytes_of(std::vector<float>{1.0f, -2.5f, 3.25f});

class Npy : public testing::Test {
 protected:
  Array<float> floats(const std::string& text) { return parse_npy_floats(text, "x.npy"); }
  Array<std::int64_t> integers(const std::string& text) { return parse_npy_integers(text, "x.npy"); }
  void expect_refused(const std::string& text, std::vector<std::string> words) {
    words.push_back("x.npy");
    expect_usage_error([&] { floats(text); }, words);
  }
  TempFolder folder_;
};

TEST_F(Npy, ArraysComeBackAsTheyWereWritten) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{2, 3}, Shape{3, 0, 2}, Shape{2, 1, 3, 4}}) {
    const auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    Array<float> written{shape, std::vector<float>(static_cast<std::size_t>(count))};
    std::iota(written.values.begin(), written.values.end(), -1.5f);
    write_npy(folder_ / "f.npy", written);
    const auto read = read_npy_floats(folder_ / "f.npy");
    EXPECT_EQ(read.shape, written.shape);
    EXPECT_EQ(read.values, written.values);

    Array<std::int64_t> whole{shape, {written.values.begin(), written.values.end()}};
    write_npy(folder_ / "i.npy", whole);
    const auto read_whole = read_npy_integers(folder_ / "i.npy");
    EXPECT_EQ(read_whole.shape, whole.shape);
    EXPECT_EQ(read_whole.values, whole.values);
  }
}

TEST_F(Npy, EveryBitOfAValueSurvives) {
  const std::vector<float> values{-0.0f, 1e-45f, std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                                  std::nextafter(1.0f, 2.0f)};
  write_npy(folder_ / "f.npy", Array<float>{{5}, values});
  EXPECT_EQ(bytes_of(read_npy_floats(folder_ / "f.npy").values), bytes_of(values));
  const std::vector<std::int64_t> whole{std::numeric_limits<std::int64_t>::min(), -1,
                                        std::numeric_limits<std::int64_t>::max()};
  write_npy(folder_ / "i.npy", Array<std::int64_t>{{3}, whole});
  EXPECT_EQ(read_npy_integers(folder_ / "i.npy").values, whole);
}

TEST_F(Npy, WrittenFilesAreFormat1AndAligned) {
  write_npy(folder_ / "f.npy", Array<float>{{3}, {1.0f, -2.5f, 3.25f}});
  const auto text = folder_.read("f.npy");
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ((text.size() - kThreeFloats.size()) % 64, 0u);
  EXPECT_EQ(text[text.size() - kThreeFloats.size() - 1], '\n');
  EXPECT_TRUE(text.ends_with(kThreeFloats));
}

TEST_F(Npy, ReadsTheTypesAndFormatsThatNumPyWrites) {
  const std::vector<float> expected{1.0f, -2.5f, 3.25f};
  EXPECT_EQ(floats(npy_text(header("<f4", "(3,)"), kThreeFloats)).values, expected);
  EXPECT_EQ(floats(npy_text(header("<f4", "(3,)"), kThreeFloats, 2)).values, expected);
  EXPECT_EQ(floats(npy_text(header("<f8", "(3,)"), bytes_of(std::vector<double>{1.0, -2.5, 3.25}))).values, expected);
  EXPECT_EQ(floats(npy_text(header("<f4", "(3, 1)"), kThreeFloats)).shape, (Shape{3, 1}));
  EXPECT_EQ(integers(npy_text(header("<i4", "(2,)"), bytes_of(std::vector<std::int32_t>{-1, 7}))).values,
            (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(integers(npy_text(header("<i8", "(1,)"), bytes_of(std::vector<std::int64_t>{1LL << 40}))).values,
            (std::vector<std::int64_t>{1LL << 40}));
}

TEST_F(Npy, ReadsEveryFormatWithItsKeysInAnyOrder) {
  for (const char major : {1, 2, 3}) {
    const auto text = npy_text("{\"shape\":(3,),'descr' : '<f4' , 'fortran_order':False}", kThreeFloats, major);
    EXPECT_EQ(floats(text).values, (std::vector<float>{1.0f, -2.5f, 3.25f}));
  }
}

TEST_F(Npy, HeaderIsALiteralAndNothingElse) {
  const std::string descr = "'descr': '<f4', ", order = "'fortran_order': False, ", shape = "'shape': (3,), ";
  EXPECT_NO_THROW(floats(npy_text("{" + descr + order + shape + "}", kThreeFloats)));
  const auto refuse = [&](const std::string& text, const std::string& what) {
    expect_refused(npy_text(text, kThreeFloats), {what});
  };
  refuse("{" + descr + order + shape + descr + "}", "'descr' twice");
  refuse("{" + descr + order + shape + "'more': 1}", "unknown key 'more'");
  refuse("{" + descr + order + shape + "} + {}", "behind its end");
  refuse("{" + descr + order + shape, "a quoted key");
  refuse("{" + descr + order + "'shape' (3,)}", "a colon");
  refuse("{" + descr + order + "'shape': (3,) 'x': 1}", "a comma");
  refuse("{" + order + shape + "'descr': __import__('os').name}", "a quoted dtype");
  refuse("{" + order + shape + "'descr': '<f4", "a closing quote");
  refuse("{" + descr + shape + "'fortran_order': 0}", "True or False");
  refuse("{" + descr + order + "'shape': (1 + 2,)}", "shape");
  refuse("{" + descr + order + "'shape': (3)(4)}", "a comma");
  // A key inside a string is text.
  refuse("{'descr': \"'shape': (3,)\", " + order + "}", "lacks 'shape'");
}

TEST_F(Npy, HeaderLengthThatLiesIsAnError) {
  const auto whole = npy_text(header("<f4", "(3,)"), kThreeFloats, 2);
  for (const auto& length : {std::string("\xff\xff\xff\xff"), std::string("\x00\x00\x00\x80", 4)}) {
    expect_refused(std::string(whole).replace(8, 4, length), {"header is cut"});
  }
  expect_refused(std::string(whole).replace(8, 4, std::string(4, '\0')), {"a dictionary"});
  for (int shift : {-1, 1}) {
    auto text = whole;
    text[8] = static_cast<char>(text[8] + shift);
    expect_refused(text, {"x.npy"});
  }
}

TEST_F(Npy, WrongDtypeIsNamedWithTheOneExpected) {
  for (const std::string dtype : {"<f2", ">f4", "<i4", "|u1", "<c8", "<U5"}) {
    expect_refused(npy_text(header(dtype, "(3,)"), kThreeFloats), {"float32", dtype + " found", "astype"});
  }
  expect_usage_error([&] { integers(npy_text(header("<f4", "(3,)"), kThreeFloats)); }, {"x.npy", "int32", "<f4 found"});
  expect_refused(npy_text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", kThreeFloats),
                 {"structured"});
}

TEST_F(Npy, PickledObjectsAreRefused) {
  for (const std::string dtype : {"|O", "O", "|O8"}) {
    expect_refused(npy_text(header(dtype, "(3,)"), "\x80\x03]q"),
                   {"pickled", "refused", "allow_pickle=False", "float32"});
  }
}

TEST_F(Npy, FortranOrderIsRefusedWithWhatToDo) {
  expect_refused(npy_text(header("<f4", "(3, 1)", "True"), kThreeFloats), {"Fortran order", "ascontiguousarray"});
}

TEST_F(Npy, ValuesThatAreNotFiniteAreNamedByPlace) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    expect_refused(npy_text(header("<f4", "(2,)"), bytes_of(std::vector<float>{1, bad})), {"value 1 ", "finite"});
  }
  expect_refused(npy_text(header("<f8", "(1,)"), bytes_of(std::vector<double>{1e300})), {"value 0 ", "finite"});
}

TEST_F(Npy, EveryCutOfAFileIsAnError) {
  const auto whole = npy_text(header("<f4", "(3,)"), kThreeFloats);
  ASSERT_EQ(floats(whole).values.size(), 3u);
  for (std::size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size), {});
  expect_refused("", {"not an npy file"});
  expect_refused(whole.substr(0, 40), {"header is cut"});
  expect_refused(whole.substr(0, whole.size() - 1), {"12 bytes", "found 11", "cut"});
}

TEST_F(Npy, BytesBehindTheValuesAreAnError) {
  expect_refused(npy_text(header("<f4", "(3,)"), kThreeFloats + "x"), {"12 bytes", "found 13"});
}

TEST_F(Npy, ShapesThatCannotBeAreRefusedBeforeAnythingIsAllocated) {
  expect_refused(npy_text(header("<f4", "(1000000000, 1000000000)"), kThreeFloats), {"shape is too large"});
  expect_refused(npy_text(header("<f4", "(281474976710656, 2)"), kThreeFloats), {"shape is too large"});
  expect_refused(npy_text(header("<f4", "(281474976710656,)"), kThreeFloats), {"1125899906842624 bytes", "found 12"});
  // Nothing in it, and yet its extents overflow whoever multiplies the others.
  expect_refused(npy_text(header("<f4", "(0, 4294967296, 4294967296)"), ""), {"shape is too large"});
  expect_refused(npy_text(header("<f4", "(4294967296, 4294967296, 0)"), ""), {"shape is too large"});
  for (const char* shape :
       {"(-1,)", "(3", "3,", "(a,)", "(99999999999999999999,)", "(3.5,)", "(1,1,1,1,1,1,1,1,1,3)"}) {
    SCOPED_TRACE(shape);
    expect_refused(npy_text(header("<f4", shape), kThreeFloats), {"shape"});
  }
}

TEST_F(Npy, HeaderWithoutItsKeysIsNamedByTheMissingOne) {
  expect_refused(npy_text("{'fortran_order': False, 'shape': (3,), }", kThreeFloats), {"'descr'"});
  expect_refused(npy_text("{'descr': '<f4', 'shape': (3,), }", kThreeFloats), {"'fortran_order'"});
  expect_refused(npy_text("{'descr': '<f4', 'fortran_order': False, }", kThreeFloats), {"'shape'"});
  expect_refused(npy_text("{}", kThreeFloats), {"'descr'"});
  expect_refused(npy_text("", kThreeFloats), {"a dictionary"});
  expect_refused(npy_text(header("<f4", "(3,)"), kThreeFloats, 9), {"format 1, 2 or 3", "9 found"});
}

TEST_F(Npy, AnyWrongByteInTheHeaderIsAnErrorOrHarmless) {
  const auto whole = npy_text(header("<f4", "(3,)"), kThreeFloats);
  for (std::size_t place = 0; place + kThreeFloats.size() < whole.size(); ++place) {
    for (const char wrong : {'\0', '\x7f', '9', '(', '\'', '\xff'}) {
      auto text = whole;
      text[place] = wrong;
      try {
        EXPECT_EQ(floats(text).values.size(), 3u) << "byte " << place;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace xs
