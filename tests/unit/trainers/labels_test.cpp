// Labels of data sets as class numbers, and whose names count: the model's or the data's.

#include "text/labels.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/models/class_names.hpp"
#include "support/throws.hpp"

namespace texts {
namespace {

using lockstep::ArrowDataset;
using lockstep::DataError;
using lockstep::Feature;
using lockstep::Features;
using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

ArrowDataset with_texts(const Names& labels) {
  return ArrowDataset::from_columns({{"label", lockstep::make_column(labels)}});
}

ArrowDataset with_numbers(const Numbers& labels) {
  return ArrowDataset::from_columns({{"label", lockstep::make_column(labels)}});
}

/// Numbers whose meaning the file declares, as `datasets` keeps it.
ArrowDataset with_class_label(const Names& names, const Numbers& labels) {
  return with_numbers(labels).cast(Features({{"label", Feature::class_label(names)}}));
}

Numbers numbers_of(const ArrowDataset& table, const Classes& classes) {
  const auto labelled = with_labels(table, "label", classes, "rows.csv");
  const auto column = labelled.column<std::int64_t>("labels");
  Numbers numbers;
  for (std::int64_t row = 0; row < labelled.num_rows(); ++row) numbers.push_back(column[row]);
  return numbers;
}

Classes named(const Names& names) { return {.names = names, .count = std::ssize(names)}; }

TEST(Labels, TextsGetTheNumberOfTheirName) {
  const Classes classes = named({"positive", "negative", "neutral"});
  EXPECT_EQ(numbers_of(with_texts({"neutral", "negative", "positive"}), classes), (Numbers{2, 1, 0}));
  EXPECT_THROWS(numbers_of(with_texts({"neutral", "mixed"}), classes), DataError, "rows.csv, row 1",
                "\"mixed\"", "not one of the 3 classes", "'positive', 'negative', 'neutral'");
}

TEST(Labels, BooleansAreNumbers) {
  const auto table =
      ArrowDataset::from_columns({{"label", lockstep::make_column(std::vector<bool>{true, false})}});
  const Classes classes = classes_of(table, "label", "rows.csv");
  EXPECT_EQ(classes.count, 2);
  EXPECT_TRUE(classes.names.empty());
  EXPECT_EQ(numbers_of(table, classes), (Numbers{1, 0}));
}

TEST(Labels, OfAnotherKindAreRefusedWithTheirRow) {
  const auto with = [](const lockstep::Column& labels) {
    return ArrowDataset::from_columns({{"label", labels}});
  };
  EXPECT_THROWS(classes_of(with(lockstep::make_column(std::vector<double>{1, 0, 0.5})), "label", "rows.csv"),
                DataError, "rows.csv, row 2", "0.5", "names, or numbers from 0 on");
  EXPECT_THROWS(
      classes_of(with(lockstep::make_column(std::vector<Numbers>{{1}, {0, 1}})), "label", "rows.csv"),
      DataError, "rows.csv, row 0", "[1]");
  EXPECT_THROWS(
      numbers_of(with(lockstep::make_column(std::vector<double>{1, 0.5})), {.names = {}, .count = 2}),
      DataError, "rows.csv, row 1", "0.5", "not one of the 2 classes");
}

TEST(Labels, TakeThePlaceOfAColumnOfTheirName) {
  const auto table = with_numbers({1, 0}).add_column("labels", lockstep::make_column(Names{"x", "y"}));
  EXPECT_EQ(numbers_of(table, {.names = {}, .count = 2}), (Numbers{1, 0}));
}

/// Two files may declare the same classes in another order.
TEST(Labels, NumbersOfAClassLabelGoByItsNames) {
  const auto train = with_class_label({"positive", "negative"}, {0, 1, 1});
  const Classes classes = classes_of(train, "label", "train");
  EXPECT_EQ(classes.names, (Names{"positive", "negative"}));
  EXPECT_EQ(numbers_of(train, classes), (Numbers{0, 1, 1}));
  EXPECT_EQ(numbers_of(with_class_label({"negative", "positive"}, {0, 1, 1}), classes), (Numbers{1, 0, 0}));
  EXPECT_EQ(numbers_of(with_texts({"negative", "positive"}), classes), (Numbers{1, 0}));
  EXPECT_THROWS(numbers_of(with_class_label({"negative", "mixed"}, {0, 1}), classes), DataError, "row 1",
                "not one of the 2 classes");
  EXPECT_THROWS(numbers_of(with_class_label({"negative", "positive"}, {-1}), classes), DataError, "row 0",
                "-1");
}

TEST(Classes, TheModelsNamesRule) {
  const Classes model = named({"positive", "negative", "neutral"});
  EXPECT_EQ(agreed_classes(named({"negative", "positive"}), model, "train.csv", "tuned").names, model.names);
  const Classes of_numbers = agreed_classes({.names = {}, .count = 2}, model, "train.csv", "tuned");
  EXPECT_EQ(of_numbers.names, model.names);
  EXPECT_EQ(of_numbers.count, 3);
}

TEST(Classes, ThatTheModelDoesNotNameAreAnErrorThatListsBoth) {
  const Classes model = named({"positive", "negative"});
  EXPECT_THROWS(agreed_classes(named({"bad", "positive"}), model, "train.csv", "tuned"), DataError,
                "train.csv", "tuned does not name: 'bad'", "'bad', 'positive'", "'positive', 'negative'",
                "--new-classifier");
  EXPECT_THROWS(agreed_classes({.names = {}, .count = 4}, model, "train.csv", "tuned"), DataError,
                "from 0 to 3", "tuned has 2", "'positive', 'negative'");
  EXPECT_THROWS(agreed_classes(named({"a", "b"}), named({"a", "b", "a"}), "train.csv", "x"), DataError, "'a'",
                "two classes");
}

/// Placeholders are no names, unless the data have the same.
TEST(Classes, ModelsWithoutNamesTakeTheData) {
  const Classes data = named({"bad", "good"});
  EXPECT_EQ(agreed_classes(data, {.names = {}, .count = 2}, "train.csv", "new").names, data.names);
  EXPECT_EQ(agreed_classes(data, named({"LABEL_0", "LABEL_1", "LABEL_2"}), "train.csv", "new").count, 2);
  const Names placeholders = lockstep::models::placeholder_class_names(12);
  EXPECT_EQ(placeholders[10], "LABEL_10");
  const Classes by_bytes = named({"LABEL_0", "LABEL_10", "LABEL_2"});
  EXPECT_EQ(agreed_classes(by_bytes, named(placeholders), "train.csv", "new").names, placeholders);
  EXPECT_EQ(agreed_classes({.names = {}, .count = 5}, named(placeholders), "train.csv", "new").count, 5);
}

}  // namespace
}  // namespace texts
