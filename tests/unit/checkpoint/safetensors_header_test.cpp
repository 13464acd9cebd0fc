#include "checkpoint/safetensors_header.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

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

TEST(SafetensorsHeader, ReadsNamesShapesAndMetadata) {
  const auto header = parse("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("w", "[2,3]", 0, 24) + "," +
                                tensor("s", "[]", 24, 28) + "}   ",
                            28);
  ASSERT_EQ(header.entries.size(), 2U);
  EXPECT_EQ(header.entries[0].name, "w");
  EXPECT_EQ(header.entries[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(header.entries[1].shape.empty());
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, FieldsAndTensorsMayComeInAnyOrder) {
  const auto header = parse("{" + tensor("b", "[1]", 4, 8) +
                                ",\"a\":{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"I32\"}," +
                                tensor("none", "[0]", 4, 4) + "}",
                            8);
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[1].name, "none");
  EXPECT_EQ(header.entries[2].name, "b");
}

TEST(SafetensorsHeader, UnescapesNames) {
  EXPECT_EQ(parse("{" + tensor("\\u00e9\\n\\ud83d\\ude00", "[1]", 0, 4) + "}", 4).entries[0].name, "é\n😀");
}

TEST(SafetensorsHeader, AnEmptyHeaderHoldsNothing) {
  EXPECT_TRUE(parse("{}", 0).entries.empty());
  EXPECT_THROWS(parse("{}", 1), DataError, "end at data byte 0", "has 1 data bytes");
}

struct Hostile {
  std::string what;
  std::string json;
  std::uint64_t data_bytes;
  std::vector<std::string> said;
};

std::string nested(int depth) { return "{\"a\":" + std::string(static_cast<std::size_t>(depth), '['); }

std::vector<Hostile> hostile_json() {
  return {
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
      {"deep lists", nested(1000000), 0, {"a list where none belongs"}},
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
      {"negative dimension", "{" + tensor("a", "[-1]", 0, 4) + "}", 4, {"'a'", "negative number -1"}},
      {"fraction", "{" + tensor("a", "[1.0]", 0, 4) + "}", 4, {"'a'", "1.0", "no whole number"}},
      {"exponent", "{" + tensor("a", "[1e0]", 0, 4) + "}", 4, {"'a'", "1e0"}},
      {"dimension past 2^64",
       "{" + tensor("a", "[99999999999999999999]", 0, 4) + "}",
       4,
       {"no whole number below 2^64"}},
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
      {"too many dimensions",
       "{" +
           tensor(
               "a",
               "[1" +
                   [] {
                     std::string s;
                     for (int i = 0; i < 64; ++i) s += ",1";
                     return s;
                   }() +
                   "]",
               0, 4) +
           "}",
       4,
       {"more than 64"}},
      {"size does not fit", "{" + tensor("a", "[2]", 0, 4) + "}", 4, {"'a'", "needs 8 bytes", "span 4"}},
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
  };
}

TEST(SafetensorsHeader, RefusesHostileJson) {
  for (const auto& [what, json, data_bytes, said] : hostile_json()) {
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

TEST(SafetensorsHeader, ErrorsStayShortForLongNames) {
  const auto json = "{" + tensor(std::string(100000, 'n'), "[1]", 0, 8) + "}";
  try {
    parse(json, 8);
    FAIL() << "it was read";
  } catch (const DataError& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000U);
  }
}

TEST(SafetensorsHeader, ChecksItsLengthAgainstTheFile) {
  const auto length = [](const std::string& bytes, std::uint64_t file) {
    return checked_header_length(bytes, file, "m");
  };
  EXPECT_EQ(length("\x02\0\0\0\0\0\0\0"s, 10), 2U);
  EXPECT_EQ(length("\x00\xE1\xF5\x05\0\0\0\0"s, 200'000'000), 100'000'000U);
  EXPECT_THROWS(length("\x01\xE1\xF5\x05\0\0\0\0"s, 200'000'000), DataError, "100000001", "limit");
  EXPECT_THROWS(length("\x03\0\0\0\0\0\0\0"s, 10), DataError, "claims 3", "has 10", "truncated");
  EXPECT_THROWS(length("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, 10), DataError, "18446744073709551615");
  EXPECT_THROWS(length("\x02\0"s, 2), DataError, "2 bytes");
}

TEST(SafetensorsHeader, IsWrittenAsTheReferenceDoes) {
  Header header{.entries = {{.name = "a", .dtype = "U8", .shape = {3}},
                            {.name = "z", .dtype = "F32", .shape = {}},
                            {.name = "b\"\n\x01é", .dtype = "F32", .shape = {2, 0}}},
                .metadata = {{"k", "\b\x1F\x7F"}}};
  const auto written = make_header(header);
  const auto json = R"({"__metadata__":{"k":"\b\u001f)" + "\x7F"s +
                    R"("},"b\"\n\u0001é":{"dtype":"F32","shape":[2,0],)" +
                    R"("data_offsets":[0,0]},"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)" +
                    R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  EXPECT_EQ(written.size() % 8, 0U);
  EXPECT_EQ(written.substr(8, json.size()), json);
  EXPECT_EQ(written.find_last_not_of(' '), 8 + json.size() - 1);
  EXPECT_EQ(checked_header_length(written, written.size(), "m"), written.size() - 8);
  const auto again = parse(written.substr(8), 7);
  EXPECT_EQ(again.entries[0].name, "b\"\n\x01é");
  EXPECT_EQ(again.metadata, header.metadata);
}

TEST(SafetensorsHeader, RefusesToWriteWhatItCouldNotRead) {
  const auto make = [](std::vector<Entry> entries, std::map<std::string, std::string> metadata = {}) {
    Header header{std::move(entries), std::move(metadata)};
    return make_header(header);
  };
  const Entry good{.name = "a", .dtype = "F32", .shape = {1}};
  EXPECT_EQ(make({good}).size() % 8, 0U);
  EXPECT_THROWS(make({good, good}), UsageError, "'a'", "twice");
  EXPECT_THROWS(make({{.name = "\xFF", .dtype = "F32", .shape = {}}}), UsageError, "UTF-8");
  EXPECT_THROWS(make({{.name = "\xED\xA0\x80", .dtype = "F32", .shape = {}}}), UsageError, "UTF-8");
  EXPECT_THROWS(make({{.name = "__metadata__", .dtype = "F32", .shape = {}}}), UsageError, "reserves");
  EXPECT_THROWS(make({{.name = "a", .dtype = "F31", .shape = {}}}), UsageError, "F31");
  EXPECT_THROWS(make({{.name = "a", .dtype = "F32", .shape = std::vector<std::int64_t>(65, 1)}}), UsageError,
                "64");
  EXPECT_THROWS(make({good}, {{"k", "\xC3"}}), UsageError, "metadata value", "UTF-8");
  EXPECT_THROWS(make({good}, {{"\xF5\x80\x80\x80", ""}}), UsageError, "metadata key", "UTF-8");
  EXPECT_THROWS(make({good}, {{"k", std::string(kLongestHeader, 'v')}}), UsageError, "100000000");
}

TEST(SafetensorsHeader, EveryTruncationOfAHeaderIsRefused) {
  const auto json = "{\"__metadata__\":{\"k\":\"v\"}," + tensor("w", "[2]", 0, 8) + "}";
  for (std::size_t length = 0; length < json.size(); ++length) {
    EXPECT_THROW(parse(json.substr(0, length), 8), DataError) << length;
  }
  EXPECT_EQ(parse(json, 8).entries.size(), 1U);
}

}  // namespace
}  // namespace lockstep::safetensors
