#include "checkpoint/safetensors_header.hpp"

#include <gtest/gtest.h>

#include "checkpoint/dtypes.hpp"
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

TEST(Dtypes, AreFoundByTheirNamesInPython) {
  EXPECT_EQ(find_python_dtype("torch.float8_e4m3fn"), find_dtype("F8_E4M3"));
  EXPECT_EQ(find_python_dtype("torch.HalfStorage"), find_dtype("F16"));
  EXPECT_EQ(find_python_dtype("torch.UntypedStorage"), find_dtype("U8"));
  EXPECT_EQ(find_python_dtype("torch.storage.UntypedStorage"), find_dtype("U8"));
  for (const char* unknown : {"", "F32", "float32", "torch.complex128", "torch.Size"})
    EXPECT_EQ(find_python_dtype(unknown), nullptr) << unknown;
  EXPECT_EQ(find_dtype("U64")->order(), 0);
  EXPECT_EQ(find_dtype("BOOL")->order(), 18);
}

}  // namespace
}  // namespace lockstep::safetensors
