#include "checkpoint/safetensors_header.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::safetensors {
namespace {

using namespace std::string_literals;

Header parse(const std::string& json, std::uint64_t data_bytes) {
  return parse_header(json, data_bytes, "m.safetensors");
}

std::string tensor(const std::string& name, const std::string& shape, int begin, int end,
                   const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

/// A header that must be refused, and what the error must say.
struct Hostile {
  std::string what;
  std::string json;
  std::uint64_t data_bytes;
  std::vector<std::string> said;
};

void expect_refused(const std::vector<Hostile>& table) {
  for (const auto& [what, json, data_bytes, said] : table) {
    SCOPED_TRACE(what);
    try {
      parse(json, data_bytes);
      ADD_FAILURE() << "it was read";
    } catch (const DataError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("m.safetensors"), std::string::npos) << text;
      for (const auto& part : said)
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }
}

TEST(SafetensorsHostile, RefuseMalformedJson) {
  expect_refused({
      {"empty", "", 0, {"does not begin with '{'"}},
      {"list", "[]", 0, {"does not begin with '{'"}},
      {"space first", " {}", 0, {"does not begin with '{'"}},
      {"byte order mark", "\xEF\xBB\xBF{}", 0, {"does not begin with '{'"}},
      {"zero byte", "{}\0{"s, 0, {"zero byte"}},
      {"no end", "{", 0, {"no valid UTF-8 JSON"}},
      {"something behind", "{}{}", 0, {"no valid UTF-8 JSON"}},
      {"comma behind", "{\"__metadata__\":{},}", 0, {"no valid UTF-8 JSON"}},
      {"comment", "{/**/}", 0, {"no valid UTF-8 JSON"}},
      {"bad UTF-8", "{\"\xFF\":{}}", 0, {"no valid UTF-8 JSON"}},
      {"overlong UTF-8", "{\"\xC0\x80\":{}}", 0, {"no valid UTF-8 JSON"}},
      {"lone surrogate", "{\"\\ud800\":{}}", 0, {"no valid UTF-8 JSON"}},
  });
}

TEST(SafetensorsHostile, RefuseValuesWhereNoneBelong) {
  const std::string deep = "{\"a\":" + std::string(1000000, '[');
  expect_refused({
      {"deep lists", deep, 0, {"a list where none belongs"}},
      {"deep objects", "{\"a\":{\"dtype\":{", 0, {"an object where none belongs"}},
      {"list in the shape", "{\"a\":{\"shape\":[[", 0, {"a list in a list"}},
      {"object in the shape", "{\"a\":{\"shape\":[{", 0, {"an object where none belongs"}},
      {"object in the metadata", "{\"__metadata__\":{\"a\":{}}}", 0, {"an object where none belongs"}},
      {"number in the metadata", "{\"__metadata__\":{\"a\":1}}", 0, {"the number 1", "none belongs"}},
      {"list as metadata", "{\"__metadata__\":[]}", 0, {"a list where none belongs"}},
      {"text as a tensor", "{\"a\":\"b\"}", 0, {"the text 'b'"}},
      {"number as a tensor", "{\"a\":7}", 0, {"the number 7"}},
      {"null as a tensor", "{\"a\":null}", 0, {"a null"}},
      {"boolean in the shape", "{\"a\":{\"shape\":[true]}}", 0, {"'a'", "a boolean"}},
      {"text in the shape", "{\"a\":{\"shape\":[\"1\"]}}", 0, {"'a'", "the text '1'"}},
      {"number as dtype", "{\"a\":{\"dtype\":1}}", 0, {"'a'", "the number 1"}},
      {"number as shape", "{\"a\":{\"shape\":1}}", 0, {"'a'", "the number 1"}},
  });
}

TEST(SafetensorsHostile, RefuseDuplicatesAndUnknownFields) {
  expect_refused({
      {"tensor twice",
       "{" + tensor("a", "[1]", 0, 4) + "," + tensor("a", "[1]", 4, 8) + "}",
       8,
       {"'a' twice"}},
      {"tensor twice, escaped",
       "{" + tensor("a", "[1]", 0, 4) + "," + tensor("\\u0061", "[1]", 4, 8) + "}",
       8,
       {"twice"}},
      {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, {"'__metadata__' twice"}},
      {"metadata key twice", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, {"'k' twice"}},
      {"field twice", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, {"'dtype' twice"}},
      {"unknown field", "{\"a\":{\"colour\":\"red\"}}", 0, {"'colour'", "does not know"}},
      {"field missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}", 0, {"'a'", "all three"}},
      {"no fields", "{\"a\":{}}", 0, {"'a'", "all three"}},
      {"unknown dtype", "{" + tensor("a", "[1]", 0, 4, "F31") + "}", 4, {"'a'", "F31", "not known"}},
      {"packed dtype", "{" + tensor("a", "[2]", 0, 1, "F4") + "}", 1, {"'a'", "F4", "not known"}},
  });
}

TEST(SafetensorsHostile, RefuseImpossibleSizes) {
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_refused({
      {"negative dimension", "{" + tensor("a", "[-1]", 0, 4) + "}", 4, {"'a'", "negative number -1"}},
      {"fraction", "{" + tensor("a", "[1.0]", 0, 4) + "}", 4, {"'a'", "1.0", "not an integer"}},
      {"exponent", "{" + tensor("a", "[1e0]", 0, 4) + "}", 4, {"'a'", "1e0"}},
      {"dimension past 2^64",
       "{" + tensor("a", "[99999999999999999999]", 0, 4) + "}",
       4,
       {"not an integer below 2^64"}},
      {"dimension past 2^63",
       "{" + tensor("a", "[9223372036854775808]", 0, 4) + "}",
       4,
       {"exceeds 2^63 - 1"}},
      {"product past 2^63",
       "{" + tensor("a", "[4294967296,4294967296]", 0, 4) + "}",
       4,
       {"'a'", "more than 2^63 - 1"}},
      {"product wraps to 4",
       "{" + tensor("a", "[4611686018427387905]", 0, 4) + "}",
       4,
       {"more than 2^63 - 1"}},
      {"empty, but strides overflow",
       "{" + tensor("a", "[0,4294967296,4294967296]", 0, 0) + "}",
       0,
       {"2^63 - 1"}},
      {"too many dimensions", "{" + tensor("a", many + "]", 0, 4) + "}", 4, {"more than 64"}},
      {"size does not fit", "{" + tensor("a", "[2]", 0, 4) + "}", 4, {"'a'", "needs 8 bytes", "span 4"}},
  });
}

TEST(SafetensorsHostile, RefuseHolesAndOverlaps) {
  expect_refused({
      {"one offset", "{\"a\":{\"data_offsets\":[0]}}", 0, {"1 data_offsets instead of 2"}},
      {"three offsets", "{\"a\":{\"data_offsets\":[0,1,2]}}", 0, {"more than 2 data_offsets"}},
      {"offsets turned round", "{" + tensor("a", "[1]", 4, 0) + "}", 4, {"'a'", "outside"}},
      {"offsets past the end", "{" + tensor("a", "[2]", 0, 8) + "}", 4, {"'a'", "outside", "4 data bytes"}},
      {"hole at the beginning", "{" + tensor("a", "[1]", 4, 8) + "}", 8, {"'a'", "begin at byte 0", "hole"}},
      {"hole",
       "{" + tensor("a", "[1]", 0, 4) + "," + tensor("b", "[1]", 8, 12) + "}",
       12,
       {"'b'", "byte 4", "hole"}},
      {"overlap",
       "{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[2]", 4, 12) + "}",
       12,
       {"'b'", "byte 8", "overlaps"}},
      {"same bytes",
       "{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[2]", 0, 8) + "}",
       8,
       {"byte 8", "overlaps"}},
      {"empty tensor inside another",
       "{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[0]", 4, 4) + "}",
       8,
       {"'b'", "overlaps"}},
      {"bytes left over", "{" + tensor("a", "[1]", 0, 4) + "}", 9, {"end at data byte 4", "9 data bytes"}},
  });
}

}  // namespace
}  // namespace lockstep::safetensors
