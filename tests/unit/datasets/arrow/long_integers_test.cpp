#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using Unsigned = std::optional<std::uint64_t>;
using Signed = std::optional<std::int64_t>;

constexpr std::uint64_t kFirst = 17293822569102704640U;
constexpr std::uint64_t kSecond = 17293822569102704641U;

/// Files of one test, and what was said on standard error while they were read.
class LongIntegers : public ::testing::Test {
 protected:
  ArrowDataset read(const std::string& name, const std::string& text, const LoadOptions& options = {}) {
    testing::write_bytes(folder_ / name, text);
    ::testing::internal::CaptureStderr();
    try {
      auto data = ArrowDataset::load(folder_ / name, options);
      said_ = ::testing::internal::GetCapturedStderr();
      return data;
    } catch (...) {
      said_ = ::testing::internal::GetCapturedStderr();
      throw;
    }
  }

  static std::string type(const ArrowDataset& data) { return data.features()["id"].type().text(); }

  static LoadOptions typed(const DataType& type) {
    LoadOptions options;
    options.features = Features({{"id", Feature(type)}});
    return options;
  }

  testing::TemporaryFolder folder_;
  std::string said_;
};

TEST_F(LongIntegers, JsonKeepsUnsignedOnes) {
  const auto data = read("a.jsonl",
                         "{\"id\": 17293822569102704640}\n{\"id\": 17293822569102704641}\n{\"id\": null}\n"
                         "{\"id\": 7}\n");
  EXPECT_EQ(type(data), "uint64");
  EXPECT_EQ(data.column<std::uint64_t>("id").get(0), kFirst);
  EXPECT_EQ(data.column<std::uint64_t>("id").get(1), kSecond);
  EXPECT_EQ(data.column<std::uint64_t>("id").get(2), std::nullopt);
  EXPECT_EQ(said_, "");
  const auto lists =
      read("b.json", "[{\"id\": [1, 17293822569102704641]}, {\"id\": [17293822569102704640]}]");
  EXPECT_EQ(lists.row(0).value().to_json(), "{\"id\": [1, 17293822569102704641]}");
}

TEST_F(LongIntegers, JsonKeepsUnsignedOnesThatFollowLater) {
  std::string text;
  for (int row = 0; row < 150'000; ++row) text += "{\"id\": 5, \"real\": 1e300}\n";
  const auto data = read("a.jsonl", text + "{\"id\": 17293822569102704641}\n");
  EXPECT_EQ(type(data), "uint64");
  EXPECT_EQ(data.column<std::uint64_t>("id")[150'000], kSecond);
  EXPECT_EQ(data.column<double>("real")[3], 1e300);
}

TEST_F(LongIntegers, WhatWasWrittenIsReadBack) {
  const auto data = ArrowDataset::from_columns(
      {{"id", make_column<Unsigned>({kFirst, kSecond, std::nullopt, 1})},
       {"signed", make_column<Signed>({1234567890123456789, std::nullopt, -1234567890123456791, 0})}});
  data.to_json(folder_ / "a.jsonl");
  const auto json = ArrowDataset::load(folder_ / "a.jsonl");
  data.to_csv(folder_ / "a.csv");
  const auto csv = ArrowDataset::load(folder_ / "a.csv");
  EXPECT_EQ(type(json), "uint64");
  for (std::int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(json.row(row).value().to_json(), data.row(row).value().to_json());
    EXPECT_EQ(csv.column<std::int64_t>("signed").get(row), data.column<std::int64_t>("signed").get(row));
  }
  // Unsigned ones beside nulls are text, as in pandas.
  EXPECT_EQ(csv.column<std::string_view>("id").get(1), "17293822569102704641");
  EXPECT_EQ(csv.column<std::string_view>("id").get(2), std::nullopt);
}

TEST_F(LongIntegers, CsvKeepsThemDespiteEmptyCells) {
  const auto data = read("a.csv", "id,x\n1234567890123456789,1\n,2\n1234567890123456791,3\n");
  EXPECT_EQ(type(data), "int64");
  EXPECT_EQ(data.column<std::int64_t>("id").get(0), 1234567890123456789);
  EXPECT_EQ(data.column<std::int64_t>("id").get(1), std::nullopt);
  EXPECT_EQ(data.column<std::int64_t>("id").get(2), 1234567890123456791);
  // What float64 holds is float64 beside an empty cell, as in pandas.
  EXPECT_EQ(type(read("b.csv", "id,x\n9007199254740992,1\n,2\n-5,3\n")), "float64");
  EXPECT_EQ(type(read("c.csv", "id,x\n9007199254740993,1\n,2\n-5,3\n")), "int64");
  EXPECT_EQ(said_, "");
}

TEST_F(LongIntegers, CsvKeepsThemWhereverTheyComeFirst) {
  std::string small;
  for (int row = 0; row < 3000; ++row) small += "5,1\n";
  const std::string large = "1234567890123456789,1\n";
  for (const auto& cells : {small + large + ",1\n", small + ",1\n" + large, ",1\n" + small + large,
                            large + small + ",1\n", ",1\n" + large + small}) {
    const auto data = read("a.csv", "id,x\n" + cells);
    EXPECT_EQ(type(data), "int64");
    std::int64_t sum = 0;
    for (std::int64_t row = 0; row < data.num_rows(); ++row)
      sum += data.column<std::int64_t>("id").get(row).value_or(0);
    EXPECT_EQ(sum, 1234567890123456789 + 15'000);
  }
}

TEST_F(LongIntegers, CsvSaysOnceThatItRoundsThem) {
  const auto data = read("a.csv", "x,id\n1,0.5\n1,1234567890123456789\n1,1234567890123456791\n");
  EXPECT_EQ(type(data), "float64");
  EXPECT_EQ(data.column<double>("id")[1], 1234567890123456768.0);
  EXPECT_TRUE(contains_all(said_, {"a.csv", "row 1 (line 3)", "'id'", "1234567890123456789",
                                   "1234567890123456768", "LoadOptions::features"}));
  EXPECT_EQ(said_.find("1234567890123456791"), std::string::npos);
  const auto texts = read("c.csv", "id\n0.5\n1234567890123456789\n", typed(DataType(TypeKind::utf8)));
  EXPECT_EQ(texts.column<std::string_view>("id")[1], "1234567890123456789");
  EXPECT_EQ(said_, "");
  read("b.csv", "id\n0.5\n9007199254740992\n123456789012345678901e3\n");
  EXPECT_EQ(said_, "");
}

TEST_F(LongIntegers, JsonSaysOnceThatItRoundsThem) {
  const auto mixed =
      read("a.jsonl", "{\"id\": 0.5}\n{\"id\": 9007199254740993}\n{\"id\": 9007199254740995}\n");
  EXPECT_EQ(type(mixed), "float64");
  EXPECT_EQ(mixed.column<double>("id")[1], 9007199254740992.0);
  EXPECT_TRUE(contains_all(said_, {"line 2 of", "a.jsonl", "'id'", "9007199254740993", "9007199254740992"}));
  EXPECT_EQ(said_.find("9007199254740995"), std::string::npos);
  // No type of integers holds these two.
  EXPECT_EQ(type(read("b.jsonl", "{\"id\": -1}\n{\"id\": 17293822569102704641}\n")), "float64");
  EXPECT_TRUE(contains_all(said_, {"line 2 of", "'id'", "17293822569102704641"}));
  EXPECT_EQ(type(read("c.jsonl", "{\"id\": [{\"x\": 18446744073709551617}]}\n")), "list<struct<x: float64>>");
  EXPECT_TRUE(contains_all(said_, {"line 1 of", "'id'", "18446744073709551617"}));
  EXPECT_EQ(type(read("d.jsonl", "{\"id\": 18446744073709551616}\n{\"id\": 1e300}\n")), "float64");
  EXPECT_EQ(said_, "") << "2^64 is a float64";
}

TEST_F(LongIntegers, NegativeOnesFarFromUnsignedOnes) {
  std::string text;
  for (int row = 0; row < 20'000; ++row) text += "{\"id\": -5}\n";
  const auto data = read("a.jsonl", text + "{\"id\": 17293822569102704641}\n");
  EXPECT_EQ(type(data), "float64");
  EXPECT_EQ(data.column<double>("id")[0], -5);
  EXPECT_TRUE(contains_all(said_, {"line 20001 of", "'id'", "17293822569102704641"}));
}

TEST_F(LongIntegers, GivenTypesKeepEveryDigit) {
  const std::string text = "{\"id\": 17293822569102704641}\n{\"id\": 123456789012345678901234567890}\n";
  const auto texts = read("a.jsonl", text, typed(DataType(TypeKind::utf8)));
  EXPECT_EQ(texts.column<std::string_view>("id")[0], "17293822569102704641");
  EXPECT_EQ(texts.column<std::string_view>("id")[1], "123456789012345678901234567890");
  EXPECT_EQ(said_, "");
  EXPECT_THROWS((read("a.jsonl", text, typed(DataType(TypeKind::uint64)))), DataError, "line 2",
                "123456789012345678901234567890", "uint64");
}

}  // namespace
}  // namespace lockstep
