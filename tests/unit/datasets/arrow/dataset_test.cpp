#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include <cmath>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/arrow_writer.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/dataset_dict.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Texts = std::vector<std::string>;

ArrowDataset sample() {
  return ArrowDataset::from_columns({
      {"text", make_column<std::optional<std::string>>({"a", std::nullopt, "", "dd", "e"})},
      {"number", make_column<std::int64_t>({5, 3, 4, 1, 2})},
      {"tokens", make_column<std::vector<std::int32_t>>({{1}, {}, {2, 3}, {4}, {}})},
  });
}

std::vector<std::int64_t> numbers(const ArrowDataset& data) {
  return data.column<std::int64_t>("number").to_vector();
}

TEST(ArrowDataset, TypedColumnsReadValuesNullsAndLists) {
  const auto data = sample();
  const auto text = data.column<std::string_view>("text");
  EXPECT_EQ(text[3], "dd");
  EXPECT_TRUE(text.is_null(1));
  EXPECT_EQ(text.get(1), std::nullopt);
  EXPECT_EQ(text.get(2), "");
  const auto tokens = data.column<std::span<const std::int32_t>>("tokens");
  EXPECT_EQ(tokens[2].size(), 2U);
  EXPECT_EQ(tokens[2][1], 3);
  EXPECT_TRUE(tokens[4].empty());
  EXPECT_EQ(data.row(3).get<std::int64_t>("number"), 1);
  EXPECT_EQ(data.row(0).value().to_json(), R"({"text": "a", "number": 5, "tokens": [1]})");
}

TEST(ArrowDataset, WrongNamesRowsAndTypesSayWhatThereIs) {
  const auto data = sample();
  EXPECT_THROWS((data.column("txt")), UsageError, "'txt'", "'text'", "'number'");
  EXPECT_THROWS((data.column<float>("number")), UsageError, "int64", "float");
  EXPECT_THROWS((data.column<std::string_view>("text")[1]), UsageError, "row 1", "null");
  EXPECT_THROWS((data.row(5)), UsageError, "row 5", "5 rows");
  EXPECT_THROWS((data.select({0, -1})), UsageError, "row -1");
  EXPECT_THROWS((ArrowDataset::from_columns(
                    {{"a", make_column<std::int64_t>({1})}, {"b", make_column<std::int64_t>({1, 2})}})),
                UsageError, "'a' has 1", "'b' has 2");
}

/// The lengths of the column's chunks.
std::vector<std::int64_t> chunks(const Column& column) {
  std::vector<std::int64_t> lengths;
  const auto& data = *column.data();
  for (std::size_t chunk = 0; chunk < data.chunks().size(); ++chunk)
    lengths.push_back(data.start(chunk + 1) - data.start(chunk));
  return lengths;
}

TEST(ArrowDataset, FlattenedRowsAreInChunksOfAtMost32MiB) {
  const std::string text(std::size_t{1} << 20, 'x');
  const auto texts = make_column(std::vector<std::string>{text, text});
  const auto lists = make_column(std::vector<std::vector<std::string>>{{text, text}, {text}});
  const auto few = ArrowDataset::from_columns({{"text", texts}, {"lists", lists}});
  std::vector<std::int64_t> rows(50, 1);
  rows.front() = 0;
  const auto flat = few.select(rows).flatten_indices();
  EXPECT_EQ(chunks(flat.column("text")), (std::vector<std::int64_t>{25, 25}));
  EXPECT_EQ(chunks(flat.column("lists")), (std::vector<std::int64_t>{25, 25}));
  EXPECT_EQ(flat.column<std::string_view>("text")[49], text);
  EXPECT_EQ(flat.row(0)["lists"], few.row(0)["lists"]);
  EXPECT_EQ(flat.row(49)["lists"], few.row(1)["lists"]);
  // A list of rows of numbers is cut too; a range of rows is not copied.
  const auto numbers =
      ArrowDataset::from_columns({{"n", make_column(std::vector<std::int64_t>(100'000, 3))}});
  EXPECT_EQ(chunks(numbers.shuffle(0).flatten_indices().column("n")),
            (std::vector<std::int64_t>{65'536, 34'464}));
  const auto range = few.skip(1).flatten_indices().column<std::string_view>("text");
  EXPECT_EQ(range[0].data(), few.column<std::string_view>("text")[1].data());
}

TEST(ArrowDataset, RowOperationsCompose) {
  const auto data = sample().sort("number");
  EXPECT_EQ(numbers(data), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(numbers(data.skip(3)), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(numbers(data.filter([](const Row& row) { return row.get<std::int64_t>("number") % 2 == 1; })),
            (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_TRUE(data.has_indices());
  EXPECT_FALSE(data.flatten_indices().has_indices());
  EXPECT_EQ(numbers(data.flatten_indices()), numbers(data));
  EXPECT_EQ(numbers(ArrowDataset::concatenate({data.take(1), data, sample()})),
            (std::vector<std::int64_t>{1, 1, 2, 3, 4, 5, 5, 3, 4, 1, 2}));
  EXPECT_EQ(data.take(0).num_rows(), 0);
  EXPECT_EQ(numbers(data.shard(2, 0)), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(numbers(data.shard(2, 1, false)), (std::vector<std::int64_t>{2, 4}));
}

/// numpy.random.default_rng(42).permutation(5), default_rng(0).permutation(5)
TEST(ArrowDataset, ShufflesInNumpysOrder) {
  const auto data = ArrowDataset::from_columns({{"number", make_column<std::int64_t>({0, 1, 2, 3, 4})}});
  EXPECT_EQ(numbers(data.shuffle(42)), (std::vector<std::int64_t>{4, 2, 3, 1, 0}));
  EXPECT_EQ(numbers(data.shuffle(0)), (std::vector<std::int64_t>{2, 4, 3, 0, 1}));
}

TEST(ArrowDataset, AnAddedColumnKeepsItsOwnRows) {
  const auto shuffled = sample().shuffle(1);
  const auto data = shuffled.add_column("place", make_column<std::int64_t>({0, 1, 2, 3, 4})).select({4, 0});
  EXPECT_EQ(data.column<std::int64_t>("place").to_vector(), (std::vector<std::int64_t>{4, 0}));
  EXPECT_EQ(numbers(data), (std::vector<std::int64_t>{numbers(shuffled)[4], numbers(shuffled)[0]}));
}

TEST(ArrowDataset, FingerprintFollowsContentRowsAndNames) {
  const auto data = sample();
  EXPECT_EQ(data.fingerprint(), sample().fingerprint());
  EXPECT_EQ(data.fingerprint().size(), 32U);
  EXPECT_NE(data.fingerprint(), data.shuffle(1).fingerprint());
  EXPECT_EQ(data.shuffle(1).fingerprint(), sample().shuffle(1).fingerprint());
  EXPECT_NE(data.fingerprint(), data.rename_column("text", "t").fingerprint());
  EXPECT_NE(data.fingerprint(), data.take(4).fingerprint());
}

/// The data are hashed once, whatever rows of them are looked at.
TEST(ArrowDataset, FingerprintsOfShardsInMemoryCostNoMoreThanTheData) {
  constexpr std::int64_t kRows = 8'000'000;
  const auto data = ArrowDataset::from_columns({{"n", make_column(std::vector<std::int64_t>(kRows, 7))}});
  const auto seconds_of = [](const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double whole = seconds_of([&] { EXPECT_FALSE(data.fingerprint().empty()); });
  std::set<std::string> different;
  constexpr std::int64_t kShards = 1'000;
  const double shards = seconds_of([&] {
    for (std::int64_t shard = 0; shard < kShards; ++shard)
      different.insert(data.shard(kShards, shard).fingerprint());
  });
  EXPECT_EQ(different.size(), 1'000U);
  EXPECT_LT(shards, 50 * whole + 0.1) << "each hashed everything";
}

TEST(ArrowDataset, FingerprintOfFilesIsOfTheirBytes) {
  const testing::TemporaryFolder folder;
  sample().to_arrow(folder / "a.arrow");
  sample().to_arrow(folder / "b.arrow");
  const auto a = ArrowDataset::load(folder / "a.arrow");
  EXPECT_EQ(a.fingerprint(), ArrowDataset::load(folder / "b.arrow").fingerprint());
  EXPECT_EQ(a.files(), (std::vector<std::filesystem::path>{folder / "a.arrow"}));
  sample().shuffle(3).to_arrow(folder / "b.arrow");
  EXPECT_NE(a.fingerprint(), ArrowDataset::load(folder / "b.arrow").fingerprint());
}

TEST(ArrowDataset, SavedFoldersAppearWholeAndReadTheSame) {
  const testing::TemporaryFolder folder;
  const auto data = sample().with_split("train").class_encode_column("text");
  data.save_to_disk(folder / "saved", {.num_shards = 2, .batch_rows = 2});
  const auto read = ArrowDataset::load(folder / "saved");
  EXPECT_EQ(read.features(), data.features());
  EXPECT_EQ(read.split(), "train");
  EXPECT_EQ(read.files().size(), 2U);
  for (std::int64_t row = 0; row < 5; ++row) EXPECT_EQ(read.row(row).value(), data.row(row).value());
  EXPECT_THROWS((read.take(1).save_to_disk(folder / "saved")), UsageError, "mapped from");
  EXPECT_EQ(ArrowDataset::load(folder / "saved").num_rows(), 5);
  EXPECT_EQ(folder.files(), Texts{"saved"});
}

TEST(ArrowWriter, WritesRowsAsTheyCome) {
  const testing::TemporaryFolder folder;
  std::int64_t row = 0;
  const auto next = [&]() -> std::optional<Value> {
    if (row == 2500) return std::nullopt;
    ++row;
    return Value(Value::Fields{{"id", row}, {"text", std::string(static_cast<std::size_t>(row % 7), 'x')}});
  };
  const auto data = ArrowDataset::from_generator(next, folder / "a.arrow");
  ASSERT_EQ(data.num_rows(), 2500);
  EXPECT_EQ(data.column<std::int64_t>("id")[2499], 2500);
  EXPECT_EQ(data.column("id").data()->chunks().size(), 3U);
  ArrowWriter writer(folder / "b.arrow");
  writer.write_batch(data.take(10));
  writer.write(data.row(10).value());
  EXPECT_THROWS((writer.write_batch(data.rename_column("id", "number"))), UsageError, "number", "cast");
  EXPECT_EQ(writer.finalize(), 11);
  EXPECT_EQ(ArrowDataset::load(folder / "b.arrow").row(10).value(), data.row(10).value());
  { ArrowWriter(folder / "c.arrow").write(data.row(0).value()); }
  EXPECT_FALSE(std::filesystem::exists(folder / "c.arrow"));
  EXPECT_THROWS((ArrowWriter(folder / "d.arrow").finalize()), UsageError, "features");
}

/// Rows in later batches whose fields the first batch had not.
TEST(ArrowWriter, RefusesFieldsThatAppearLater) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const Value::Fields& first, const Value::Fields& later) {
    ArrowWriter writer(folder / "a.arrow");
    for (int row = 0; row < 1500; ++row) writer.write(first);
    writer.write(later);
    writer.finalize();
  };
  const Value::Fields inner = {{"x", 1}};
  EXPECT_THROWS((write({{"a", 1}}, {{"a", 1}, {"b", 2}})), UsageError, "row 1500", "'b'");
  EXPECT_THROWS((write({{"s", inner}}, {{"s", Value::Fields{{"x", 1}, {"y", 2}}}})), UsageError, "row 1500",
                "'y'");
  EXPECT_THROWS((write({{"a", 1}}, {{"a", "x"}})), UsageError, "row 1500", "int64");
  write({{"a", 1}, {"s", inner}}, {{"a", 2}});
  EXPECT_TRUE(ArrowDataset::load(folder / "a.arrow").row(1500)["s"].is_null());
}

TEST(ArrowDataset, ClassesAreEncodedOnce) {
  const auto encoded =
      ArrowDataset::from_columns({{"a", make_column<std::string>({"yes", "no"})}}).class_encode_column("a");
  EXPECT_EQ(encoded.features()["a"].names(), (std::vector<std::string>{"no", "yes"}));
  EXPECT_THROWS(encoded.class_encode_column("a"), UsageError, "'a' is a ClassLabel already");
}

TEST(ArrowDataset, CastsRefuseWhatDoesNotFitAndNameTheRow) {
  const auto refused = [](Column column, const DataType& type, const std::string& value) {
    const auto data = ArrowDataset::from_columns({{"a", std::move(column)}});
    EXPECT_THROWS((data.cast_column("a", Feature(type))), UsageError, "row 1 of the column 'a'", value);
  };
  const auto seconds = DataType::temporal(TypeKind::timestamp, "s");
  refused(make_column<std::string>({"2020-01-01", "soon"}), seconds, "\"soon\"");
  refused(make_column<std::int64_t>({1, (std::int64_t{1} << 53) + 1}), DataType(TypeKind::float64),
          "9007199254740993");
  ColumnBuilder structs(
      DataType::struct_({{"a", DataType(TypeKind::int64)}, {"b", DataType(TypeKind::int64)}}));
  structs.append_null();
  structs.append(Value(Value::Fields{{"a", 1}, {"b", 2}}));
  refused(structs.finish(), DataType::struct_({{"a", DataType(TypeKind::int64)}}), "'b'");
  ColumnBuilder halves{DataType(TypeKind::float16)};
  EXPECT_THROWS((halves.append(std::int64_t{9007199254740993})), UsageError, "9007199254740993", "exactly");
}

/// A column whose rows all have this value.
ArrowDataset repeated(const DataType& type, const Value& value, int rows) {
  ColumnBuilder builder(type);
  for (int row = 0; row < rows; ++row) builder.append(value);
  return ArrowDataset::from_columns({{"a", builder.finish()}});
}

/// Where a part of a structure has no cast of Arrow's, its times are still cast with their unit.
TEST(ArrowDataset, CastsOfStructuresKeepTheUnitOfTimes) {
  const auto from =
      DataType::struct_({{"day", DataType(TypeKind::date32)}, {"size", DataType(TypeKind::utf8)}});
  const auto to = DataType::struct_(
      {{"day", DataType::temporal(TypeKind::timestamp, "s")}, {"size", DataType(TypeKind::int64)}});
  const auto data =
      repeated(DataType::list(from), Value(Value::List{Value::Fields{{"day", 2}, {"size", "7"}}}), 2);
  EXPECT_EQ(data.cast_column("a", Feature(DataType::list(to))).row(1)["a"].to_json(),
            R"([{"day": 172800, "size": 7}])");
}

/// Arrow leaves too few nulls in the lists of a structure of which another part is cast.
TEST(ArrowDataset, CastsKeepTheNullsInsideOfStructures) {
  const testing::TemporaryFolder folder;
  const auto nulls = DataType::list(DataType());
  const auto from = DataType::struct_({{"nulls", nulls}, {"n", DataType(TypeKind::int8)}});
  const auto to = DataType::struct_({{"nulls", nulls}, {"n", DataType(TypeKind::int64)}});
  const Value value(Value::Fields{{"nulls", Value::List{Value(), Value()}}, {"n", 1}});
  repeated(from, value, 3).cast_column("a", Feature(to)).to_arrow(folder / "cast.arrow");
  const auto read = ArrowDataset::load(folder / "cast.arrow");
  EXPECT_EQ(read.features()["a"].type(), to);
  EXPECT_EQ(read.row(2)["a"].to_json(), R"({"nulls": [null, null], "n": 1})");
}

TEST(ArrowDataset, CastsOfNumbersAndTextAsInArrow) {
  const auto decimal = Feature(DataType::decimal(16, 10, 2));
  EXPECT_EQ(
      repeated(DataType(TypeKind::float64), Value(-2.5), 1).cast_column("a", decimal).row(0)["a"].text(),
      "-2.50");
  EXPECT_EQ(repeated(DataType(TypeKind::utf8), Value("1.5"), 1).cast_column("a", decimal).row(0)["a"].text(),
            "1.50");
  const auto truth = Feature(DataType(TypeKind::boolean));
  EXPECT_FALSE(
      repeated(DataType(TypeKind::utf8), Value("0"), 1).cast_column("a", truth).row(0)["a"].boolean());
  const auto text_as_number = [](const char* text) {
    const auto texts = repeated(DataType(TypeKind::utf8), Value(text), 1);
    return texts.cast_column("a", Feature(DataType(TypeKind::float64))).row(0)["a"].number();
  };
  EXPECT_TRUE(std::signbit(text_as_number("-0")));
  EXPECT_EQ(text_as_number("9007199254740993"), 9007199254740992.0);
}

TEST(ArrowDataset, ConcatenateFillsWhatIsMissingWithNulls) {
  ColumnBuilder none{DataType()};
  none.append_null();
  const auto nulls = ArrowDataset::from_columns({{"number", none.finish()}});
  const auto both = ArrowDataset::concatenate({nulls, sample()});
  EXPECT_EQ(both.features()["tokens"], sample().features()["tokens"]);
  EXPECT_TRUE(both.row(0)["number"].is_null());
  EXPECT_TRUE(both.row(0)["text"].is_null());
  EXPECT_EQ(both.row(1)["number"].integer(), 5);
  EXPECT_THROWS((ArrowDataset::concatenate(
                    {sample(), sample().rename_column("number", "x").rename_column("text", "number")})),
                UsageError, "number 1", "'number'", "string", "int64");
}

TEST(ArrowDataset, EmptyDataSetsAreDataSets) {
  const testing::TemporaryFolder folder;
  const auto none = sample().take(0);
  none.save_to_disk(folder / "none");
  const auto read = ArrowDataset::load(folder / "none");
  EXPECT_EQ(read.num_rows(), 0);
  EXPECT_EQ(read.features(), none.features());
  EXPECT_EQ(read.shuffle(1).num_rows(), 0);
  EXPECT_EQ(ArrowDataset().num_rows(), 0);
}

TEST(DatasetDict, SplitsByName) {
  const testing::TemporaryFolder folder;
  const auto parts = sample().train_test_split({.test_size = 2, .seed = 7});
  DatasetDict({{"train", parts.train}, {"test", parts.test}}).save_to_disk(folder / "both");
  const auto read = DatasetDict::load(folder / "both");
  EXPECT_EQ(read.names(), (Texts{"train", "test"}));
  EXPECT_EQ(numbers(read["test"]), numbers(parts.test));
  EXPECT_THROWS((read["dev"]), UsageError, "'dev'", "'train'");
  EXPECT_THROWS((ArrowDataset::load(folder / "both")), DataError, "DatasetDict");
  EXPECT_THROWS((DatasetDict({{"a/b", parts.test}})), UsageError, "a/b");
}

TEST(ColumnBuilder, RefusesWhatDoesNotFit) {
  ColumnBuilder builder{DataType(TypeKind::int8)};
  builder.append(127);
  EXPECT_THROWS((builder.append(128)), UsageError, "int8", "128");
  EXPECT_THROWS((builder.append(0.5)), UsageError, "int8", "0.5");
  EXPECT_THROWS((builder.append("x")), UsageError, "int8", "'x'");
  builder.append(-128.0);
  EXPECT_EQ(builder.finish().view<std::int8_t>().to_vector(), (std::vector<std::int8_t>{127, -128}));
}

TEST(Features, ViewsArePlain) {
  const auto features = Features::from_json(
      R"({"a": {"dtype": "string_view", "_type": "Value"}, "b": {"dtype": "binary_view", "_type": "Value"}})");
  EXPECT_EQ(features["a"].type(), DataType(TypeKind::utf8));
  EXPECT_EQ(features["b"].type(), DataType(TypeKind::binary));
}

TEST(Features, ReadOlderForms) {
  const auto features = Features::from_json(
      R"({"a": {"feature": {"dtype": "int32", "_type": "Value"}, "length": -1, "_type": "Sequence"},
          "b": {"feature": {"x": {"dtype": "string", "_type": "Value"}}, "_type": "Sequence"},
          "c": [{"dtype": "float32", "_type": "Value"}], "d": {"num_classes": 2, "_type": "ClassLabel"}})");
  EXPECT_EQ(features["a"].type().text(), "list<int32>");
  EXPECT_EQ(features["b"].type().text(), "struct<x: list<string>>");
  EXPECT_EQ(features["c"].type().text(), "list<float32>");
  EXPECT_EQ(features["d"].names(), (Texts{"0", "1"}));
  EXPECT_EQ(Features::from_json(features.to_json()), features);
  EXPECT_THROWS((Features::from_json(R"({"a": {"_type": "Value", "dtype": "int7"}})")), DataError, "int7");
}

}  // namespace
}  // namespace lockstep
