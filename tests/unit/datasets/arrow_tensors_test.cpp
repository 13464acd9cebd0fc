#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/cifar10.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

ArrowDataset sample() {
  return ArrowDataset::from_columns({
      {"text", make_column<std::string>({"a", "b", "c"})},
      {"label", make_column<std::int64_t>({7, 8, 9})},
      {"ids", make_column<std::vector<std::int32_t>>({{1}, {2, 3}, {}})},
      {"flag", make_column<bool>({true, false, true})},
  });
}

TEST(ArrowTensorDataset, RowsAndBatchesAreTensorsOfTheColumnsOwnDtypes) {
  const ArrowTensorDataset data(sample(), {.padding = {{"ids", -100}}});
  const auto row = data.get(1, {});
  EXPECT_EQ(row.names(), (std::vector<std::string>{"label", "ids", "flag"}));
  EXPECT_EQ(row["label"].item<std::int64_t>(), 8);
  EXPECT_TRUE(row["ids"].equal(at::tensor({2, 3}, at::kInt)));
  const Indices indices{2, 1, 0};
  const auto batch = data.get_batch(indices, std::vector<SampleContext>(3));
  EXPECT_TRUE(batch["label"].equal(at::tensor({9, 8, 7}, at::kLong)));
  EXPECT_TRUE(batch["ids"].equal(at::tensor({-100, -100, 2, 3, 1, -100}, at::kInt).view({3, 2})));
  EXPECT_TRUE(batch["flag"].equal(at::tensor({1, 0, 1}, at::kByte).to(at::kBool)));
  EXPECT_EQ(batch.indices, indices);
  EXPECT_EQ(data.texts("text", batch.indices), (std::vector<std::string>{"c", "b", "a"}));
}

TEST(ArrowTensorDataset, FollowsTheRowsOfItsDataSet) {
  const ArrowTensorDataset data(sample().sort("label", true), {.columns = {"label"}});
  const Indices indices{0, 2};
  EXPECT_TRUE(
      data.get_batch(indices, std::vector<SampleContext>(2))["label"].equal(at::tensor({9, 7}, at::kLong)));
}

TEST(ArrowTensorDataset, TextsThatAreNamedAreInTheBatch) {
  const ArrowTensorDataset data(sample(), {.columns = {"text", "label"}});
  EXPECT_EQ(data.get(1, {}).texts("text"), std::vector<std::string>{"b"});
  const Indices indices{2, 1};
  const auto batch = data.get_batch(indices, std::vector<SampleContext>(2));
  EXPECT_EQ(batch.texts("text"), (std::vector<std::string>{"c", "b"}));
  EXPECT_EQ(batch.names(), std::vector<std::string>{"label"});
  DataLoader loader(std::make_shared<ArrowTensorDataset>(data), {.batch_size = 2, .num_workers = 1});
  std::vector<std::string> all;
  for (const auto& each : loader)
    for (const auto& text : each.texts("text")) all.push_back(text);
  EXPECT_EQ(all, (std::vector<std::string>{"a", "b", "c"}));
}

/// Cut out of a longer column, so that its arrays do not begin at 0.
TEST(ArrowTensorDataset, JaggedListsAreNumbersAndOffsets) {
  using Boxes = std::vector<std::vector<std::vector<std::int32_t>>>;
  const auto boxes = make_column(Boxes{{{0}}, {{1, 2}, {3}}, {}, {{4}, {}}});
  ArrowTensorDataset data(ArrowDataset::from_columns({{"boxes", Column(boxes.slice(1, 3).flatten())},
                                                      {"ids", sample().column("ids")}}),
                          {.columns = {"boxes", "ids"}, .jagged = {"ids", "boxes"}});
  const Indices indices{1, 0, 2};
  const auto batch = data.get_batch(indices, std::vector<SampleContext>(3));
  EXPECT_EQ(batch.names(),
            (std::vector<std::string>{"boxes", "boxes_offsets", "boxes_offsets_1", "ids", "ids_offsets"}));
  EXPECT_TRUE(batch["boxes"].equal(at::tensor({1, 2, 3, 4}, at::kInt)));
  EXPECT_TRUE(batch["boxes_offsets"].equal(at::tensor({0, 0, 2, 4}, at::kLong)));
  EXPECT_TRUE(batch["boxes_offsets_1"].equal(at::tensor({0, 2, 3, 4, 4}, at::kLong)));
  EXPECT_TRUE(batch["ids"].equal(at::tensor({2, 3, 1}, at::kInt)));
  EXPECT_TRUE(batch["ids_offsets"].equal(at::tensor({0, 2, 3, 3}, at::kLong)));
  EXPECT_EQ(batch.size(), 3);
  const ArrowTensorDataset lists(sample(), {.columns = {"ids"}, .jagged = {"ids"}});
  EXPECT_TRUE(lists.get(1, {})["ids"].equal(at::tensor({2, 3}, at::kInt))) << "of a sample a list is a list";
  EXPECT_THROWS(data.get_batch(Indices{3}, std::vector<SampleContext>(1)), UsageError, "row 3");
  EXPECT_THROWS(ArrowTensorDataset(sample(), {.jagged = {"label"}}), UsageError, "'label'", "lists");
}

/// Cut out of longer columns, so that their arrays do not begin at 0.
TEST(ArrowTensorDataset, ListsOfBooleansAndOfUnsignedNumbers) {
  ColumnBuilder masks(DataType::list(DataType(TypeKind::boolean)));
  for (const auto& row : {std::vector<bool>{false}, {true, false, true}, {true}}) {
    Value::List list;
    for (const bool one : row) list.emplace_back(one);
    masks.append(Value(std::move(list)));
  }
  const auto tokens = make_column<std::vector<std::uint16_t>>({{7}, {65535, 1}, {2, 3, 4}});
  const auto large = make_column<std::vector<std::uint64_t>>({{7}, {1}, {~std::uint64_t{0}}});
  const auto numbers = make_column<std::uint32_t>({7, 4294967295, 2});
  const auto columns = ArrowDataset::from_columns(
      {{"mask", masks.finish()}, {"tokens", tokens}, {"large", large}, {"number", numbers}});
  const auto rows = columns.slice(1, 2).flatten_indices();
  ArrowTensorDataset data(
      rows, {.columns = {"mask", "tokens", "number"}, .padding = {{"mask", 0}, {"tokens", -1}}});
  const auto batch = data.get_batch(Indices{0, 1}, std::vector<SampleContext>(2));
  EXPECT_TRUE(batch["mask"].equal(at::tensor({1, 0, 1, 1, 0, 0}, at::kByte).to(at::kBool).view({2, 3})));
  EXPECT_TRUE(batch["tokens"].equal(at::tensor({65535, 1, -1, 2, 3, 4}, at::kLong).view({2, 3})));
  EXPECT_TRUE(batch["number"].equal(at::tensor({std::int64_t{4294967295}, std::int64_t{2}}, at::kLong)));
  const ArrowTensorDataset jagged(rows, {.columns = {"mask", "tokens"}, .jagged = {"mask", "tokens"}});
  const auto flat = jagged.get_batch(Indices{1, 0}, std::vector<SampleContext>(2));
  EXPECT_TRUE(flat["mask"].equal(at::tensor({1, 1, 0, 1}, at::kByte).to(at::kBool)));
  EXPECT_TRUE(flat["tokens"].equal(at::tensor({2, 3, 4, 65535, 1}, at::kLong)));
  const ArrowTensorDataset huge(rows, {.columns = {"large"}});
  EXPECT_EQ(huge.get(0, {})["large"].item<std::int64_t>(), 1);
  EXPECT_THROWS(huge.get(1, {}), UsageError, "'large'", "18446744073709551615", "int64");
}

TEST(ArrowTensorDataset, WhatHasNoTensorIsRefusedByName) {
  const auto words =
      ArrowDataset::from_columns({{"words", make_column<std::vector<std::string>>({{"a", "b"}})}});
  EXPECT_THROWS(ArrowTensorDataset(words, {.columns = {"words"}}), UsageError, "'words'", "list");
  const auto nulls =
      ArrowDataset::from_columns({{"n", make_column<std::optional<float>>({1.0F, std::nullopt})}});
  EXPECT_THROWS(ArrowTensorDataset{nulls}, UsageError, "'n'", "nulls");
  const ArrowTensorDataset ragged(sample());
  const Indices indices{0, 1};
  EXPECT_THROWS(ragged.get_batch(indices, std::vector<SampleContext>(2)), UsageError, "'ids'", "padding");
  EXPECT_THROWS(ragged.get(3, {}), UsageError, "row 3");
}

/// Boxes of images, say: lists of lists, cut out of a longer column so that its arrays do not begin at 0.
TEST(ArrowTensorDataset, NestedListsAreFilledUpAtEveryLevel) {
  using Boxes = std::vector<std::vector<std::vector<std::int32_t>>>;
  ColumnBuilder pairs(DataType::list(DataType::fixed_size_list(DataType(TypeKind::float32), 2)));
  for (const auto& row : {std::vector<std::vector<double>>{{0, 0}}, {{1, 2}, {3, 4}}, {}, {{5, 6}}})
    pairs.append(row);
  const auto all = ArrowDataset::from_columns(
      {{"boxes", make_column(Boxes{{{0}}, {{1, 2}, {3}}, {}, {{4}}})}, {"pairs", pairs.finish()}});
  const auto data =
      ArrowDataset::from_columns({{"boxes", Column(all.column("boxes").slice(1, 3).flatten())},
                                  {"pairs", Column(all.column("pairs").slice(1, 3).flatten())}});
  EXPECT_TRUE(ArrowTensorDataset(data).get(0, {}).empty()) << "they have to be named";
  const ArrowTensorDataset tensors(data,
                                   {.columns = {"boxes", "pairs"}, .padding = {{"boxes", -1}, {"pairs", 0}}});
  const Indices indices{2, 0, 1};
  const auto batch = tensors.get_batch(indices, std::vector<SampleContext>(3));
  EXPECT_TRUE(batch["boxes"].equal(
      at::tensor({4, -1, -1, -1, 1, 2, 3, -1, -1, -1, -1, -1}, at::kInt).view({3, 2, 2})));
  EXPECT_TRUE(
      batch["pairs"].equal(at::tensor({5, 6, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}, at::kFloat).view({3, 2, 2})));
  EXPECT_TRUE(tensors.get(0, {})["boxes"].equal(at::tensor({1, 2, 3, -1}, at::kInt).view({2, 2})));
  const ArrowTensorDataset ragged(data, {.columns = {"boxes"}});
  EXPECT_THROWS(ragged.get(0, {}), UsageError, "'boxes'", "padding");
}

/// What lies in the buffer under a null is no value.
TEST(ArrowTensorDataset, NullsInsideListsAreRefusedByColumnAndRow) {
  using Lists = std::vector<std::vector<std::optional<std::int64_t>>>;
  const auto lists =
      ArrowDataset::from_columns({{"id", make_column<std::int64_t>({0, 1, 2})},
                                  {"ids", make_column(Lists{{1, 2}, {}, {3, std::nullopt, 5}})}});
  EXPECT_THROWS(ArrowTensorDataset{lists}, UsageError, "'ids'", "row 2", "element 1", "Filter those rows");
  EXPECT_THROWS(ArrowTensorDataset{lists.select({2, 0})}, UsageError, "'ids'", "row 0", "element 1");
  const auto pairs = Features({{"id", lists.features()["id"]},
                               {"ids", Feature(DataType::fixed_size_list(DataType(TypeKind::float32), 2))}});
  ColumnBuilder builder(pairs["ids"].type());
  for (const auto& pair : Lists{{1, 2}, {3, 4}, {std::nullopt, 6}}) builder.append(pair);
  const auto fixed = ArrowDataset::from_columns({{"id", lists.column("id")}, {"ids", builder.finish()}});
  EXPECT_THROWS(ArrowTensorDataset{fixed}, UsageError, "'ids'", "row 2", "element 0");
  const auto nested =
      ArrowDataset::from_columns({{"ids", make_column(std::vector<Lists>{{{1, std::nullopt}}})}});
  EXPECT_THROWS(ArrowTensorDataset(nested, {.columns = {"ids"}}), UsageError, "'ids'", "row 0", "element 0");
  // Rows that nobody sees are nobody's matter, and without that column all rows are fine.
  const ArrowTensorDataset seen(lists.take(2));
  EXPECT_TRUE(seen.get(0, {})["ids"].equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_EQ(ArrowTensorDataset(lists, {.columns = {"id"}}).get(2, {})["id"].item<std::int64_t>(), 2);
}

std::string record(char label, char first) {
  std::string bytes(3073, first);
  bytes[0] = label;
  bytes[3072] = 'z';
  return bytes;
}

TEST(Cifar10, ReadsRecordsAndRefusesOthers) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "a.bin", record(3, 'a') + record(9, 'b'));
  const auto batch = read_cifar10(folder / "a.bin");
  EXPECT_TRUE(batch["label"].equal(at::tensor({3, 9}, at::kLong)));
  EXPECT_EQ(batch["image"].sizes(), (std::vector<std::int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(batch["image"][1][0][0][0].item<int>(), 'b');
  EXPECT_EQ(batch["image"][0][2][31][31].item<int>(), 'z');
  const std::vector<std::filesystem::path> twice(2, folder / "a.bin");
  EXPECT_EQ(read_cifar10(twice).size(), 4);
  testing::write_bytes(folder / "a.bin", record(3, 'a') + record(10, 'b'));
  EXPECT_THROWS(read_cifar10(folder / "a.bin"), DataError, "a.bin", "record 1", "label 10");
  testing::write_bytes(folder / "a.bin", record(3, 'a') + "x");
  EXPECT_THROWS(read_cifar10(folder / "a.bin"), DataError, "3074 bytes");
}

}  // namespace
}  // namespace lockstep
