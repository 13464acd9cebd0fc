#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/type.h>
#include <gtest/gtest.h>

#include <chrono>

#include "datasets/arrow/validation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

ArrowDataset read(const std::string& text, const LoadOptions& options = {}) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "data.jsonl", text);
  return ArrowDataset::load(folder / "data.jsonl", options);
}

std::string rows(const ArrowDataset& data) {
  std::string text;
  for (std::int64_t row = 0; row < data.num_rows(); ++row) text += data.row(row).value().to_json() + "\n";
  return text;
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int time = 0; time < times; ++time) all += text;
  return all;
}

/// Arrow's parser makes the nulls inside lists fewer than they are; slices of them aborted the process.
TEST(JsonNulls, ListsOfOnlyNullsAreSavedAndReadBack) {
  const testing::TemporaryFolder folder;
  const std::string lines[] = {
      "{\"i\": 1, \"a\": [null, null]}\n",
      "{\"i\": 1, \"a\": [[null, null], null, []]}\n",
      "{\"i\": 1, \"a\": [{\"b\": [null, null, null]}, null]}\n",
      "{\"i\": 1, \"a\": {\"b\": null, \"c\": [null]}}\n",
      "{\"i\": 1, \"a\": []}\n",
  };
  for (const auto& line : lines) {
    for (const int count : {10, 1001, 2500}) {
      const auto expected = repeated(line, count);
      const auto data = read(expected);
      ASSERT_EQ(rows(data), expected);
      data.save_to_disk(folder / "saved");
      EXPECT_EQ(rows(ArrowDataset::load(folder / "saved")), expected);
      data.to_arrow(folder / "a.arrow");
      EXPECT_EQ(rows(ArrowDataset::load(folder / "a.arrow")), expected);
      EXPECT_EQ(rows(data.shuffle(1).flatten_indices()), expected);
      EXPECT_EQ(rows(ArrowDataset::concatenate({data, data})), expected + expected);
    }
  }
}

TEST(JsonNulls, ListsOfNullsTakeTheTypeOfLaterElements) {
  const auto data = read(repeated("{\"a\": [null, null]}\n", 30'000) + "{\"a\": [null, 2.5]}\n");
  EXPECT_EQ(data.features()["a"].type().text(), "list<float64>");
  EXPECT_EQ(data.row(30'000).value().to_json(), "{\"a\": [null, 2.5]}");
  EXPECT_EQ(data.row(29'999).value().to_json(), "{\"a\": [null, null]}");
}

TEST(Validation, NullsGetTheLengthOfTheirParents) {
  // Two rows of two nulls each, with one null in all, as Arrow's parser returns it.
  const std::vector<std::int32_t> offsets = {0, 2, 4};
  auto made = arrow::ArrayData::Make(arrow::list(arrow::null()), 2, {nullptr, arrow::Buffer::Wrap(offsets)},
                                     {arrow::NullArray(1).data()}, 0);
  EXPECT_FALSE(arrow_file::damage_of(*made).empty());
  made = arrow_file::with_null_lengths(made);
  EXPECT_EQ(made->child_data.front()->length, 4);
  EXPECT_EQ(arrow_file::damage_of(*made), "");
}

TEST(Validation, OffsetsThatAreTooFewOrDecreaseAreDamage) {
  const std::vector<std::int32_t> offsets = {0, 2, 1, 3};
  const auto numbers = make_column<std::int64_t>({1, 2, 3}).flatten();
  const auto lists = [&](std::int64_t rows) {
    return arrow::ArrayData::Make(arrow::list(arrow::int64()), rows, {nullptr, arrow::Buffer::Wrap(offsets)},
                                  {numbers->data()}, 0);
  };
  EXPECT_EQ(arrow_file::damage_of(*lists(3)), "row 1: its offsets go from 2 back to 1");
  EXPECT_NE(arrow_file::damage_of(*lists(9)), "");
  EXPECT_EQ(arrow_file::damage_of(*arrow_file::with_null_lengths(lists(1))), "");
}

/// As `jq .` writes them.
constexpr const char* kPretty =
    "{\n  \"id\": 1,\n  \"tags\": [\n    \"a\",\n    \"}\"\n  ]\n}\n"
    "{\n  \"id\": 2,\n  \"tags\": []\n}\n\n"
    "{\"id\": 3, \"tags\": [\"x\"]} {\"id\": 4}\n";

TEST(JsonObjects, SeveralOverSeveralLines) {
  EXPECT_EQ(
      rows(read(kPretty)),
      "{\"id\": 1, \"tags\": [\"a\", \"}\"]}\n{\"id\": 2, \"tags\": []}\n{\"id\": 3, \"tags\": [\"x\"]}\n"
      "{\"id\": 4, \"tags\": null}\n");
  EXPECT_EQ(rows(read("{\"a\":\n1}\n{\"a\": 2}\n")), "{\"a\": 1}\n{\"a\": 2}\n");
  // The first one may be short.
  EXPECT_EQ(rows(read("{\"a\": 1}\n{\n\"a\": 2\r\n}\r\n")), "{\"a\": 1}\n{\"a\": 2}\n");
  const auto many = read(repeated(kPretty, 20'000));
  EXPECT_EQ(many.num_rows(), 80'000);
  EXPECT_EQ(many.column<std::int64_t>("id")[79'999], 4);
}

TEST(JsonObjects, ErrorsNameTheLineWhereTheyBegin) {
  const std::string pretty = kPretty;
  EXPECT_THROWS((read(pretty + "{\n\"id\": \"x\"\n}\n")), DataError, "line 14", "'id'", "string", "int64");
  EXPECT_THROWS((read(pretty + "{\n\"id\": tru\n}\n")), DataError, "line 14", "not valid JSON");
  EXPECT_THROWS((read(pretty + "{\n\"id\": 5,\n")), DataError, "line 14", "not valid JSON");
  EXPECT_THROWS((read(pretty + "7\n")), DataError, "line 14", "object");
  EXPECT_THROWS((read(pretty + "{\"id\": 1, \"tags\": [\"a\nb\"]}\n")), DataError, "line 14", "\\n");
}

/// A line that is broken off is no object over several lines.
TEST(JsonObjects, BrokenLinesStayLines) {
  EXPECT_THROWS((read("{\"a\": \n{\"a\": 2}\n{\"a\": 3}\n")), DataError, "line 1", "not valid JSON");
  EXPECT_THROWS((read("{\"a\": \"x\n{\"a\": \"y\"}\n")), DataError, "line 1", "not valid JSON");
  EXPECT_THROWS((read("{\"a\": 1}\n{\"a\": {\"b\": 2}\n{\"a\": 3}\n")), DataError, "line 2",
                "not valid JSON");
}

TEST(JsonLists, TrailingOrBrokenTextIsAnError) {
  EXPECT_THROWS((read("[{\"a\": 1}] x")), DataError, "follows its list");
  EXPECT_THROWS((read("[{\"a\": 1}, {\"a\": ")), DataError, "element 1");
  EXPECT_THROWS((read("[{\"a\": 1},]")), DataError, "element 1");
  EXPECT_THROWS((read("[{\"a\": \"x\ny\"}]")), DataError, "element 0", "\\n");
  EXPECT_THROWS((read("[]")), DataError, "no rows");
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// As many columns as there are names, in a row or a few: time and memory grow with the text.
TEST(JsonNames, ManyColumnsAreRead) {
  constexpr int kNames = 20'000;
  std::string object = "{";
  for (int name = 0; name < kNames; ++name)
    object +=
        (name > 0 ? ", \"user_" : "\"user_") + std::to_string(name * 7919) + "\": " + std::to_string(name);
  object += "}\n";
  ArrowDataset data;
  const auto taken = seconds_of([&] { data = read(object + object); });
  ASSERT_EQ(data.num_columns(), kNames);
  EXPECT_EQ(data.column<std::int64_t>("user_158372081")[1], 19'999);
  // Seconds are for sanitizers and busy machines: it takes a fraction of one. It was most of a minute.
  EXPECT_LT(taken, 15);
}

std::string votes(int rows) {
  std::string text;
  for (int row = 0; row < rows; ++row) {
    const auto user = std::to_string(1'000'003LL * row);
    text +=
        "{\"item\": " + std::to_string(row) + ", \"votes\": {\"" + user + "\": 1, \"x" + user + "\": 2}}\n";
  }
  return text;
}

/// Names that are data would become columns of almost only nulls.
TEST(JsonNames, IdsAsNamesAreRefusedBeforeTheyFillTheMemory) {
  const auto taken = seconds_of([&] {
    EXPECT_THROWS((read(votes(10'000))), DataError, "data.jsonl", "'votes'", "different names",
                  "list of objects", "LoadOptions::features");
  });
  EXPECT_LT(taken, 30);
  LoadOptions options;
  options.features =
      Features({{"item", Feature(DataType(TypeKind::int64))}, {"votes", Feature(DataType(TypeKind::utf8))}});
  EXPECT_EQ(read(votes(10'000), options).row(9'999).value().to_json(),
            "{\"item\": 9999, \"votes\": \"{\\\"9999029997\\\": 1, \\\"x9999029997\\\": 2}\"}");
  // A few are columns.
  EXPECT_EQ(read(votes(50)).features()["votes"].type().fields().size(), 100U);
}

TEST(JsonNames, AnObjectForTextIsItsJson) {
  LoadOptions options;
  options.features = Features({{"a", Feature(DataType::list(DataType(TypeKind::utf8)))}});
  EXPECT_EQ(rows(read("{\"a\": [{\"b\": [1, null]}, [2.5], \"x\", 3, null]}\n", options)),
            "{\"a\": [\"{\\\"b\\\": [1, null]}\", \"[2.5]\", \"x\", \"3\", null]}\n");
}

}  // namespace
}  // namespace lockstep
