#include "lockstep/data/batch.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

Batch two() { return Batch{{"image", at::ones({3, 2})}, {"label", at::arange(3)}}; }

TEST(Batch, KeepsTheOrderOfInsertion) {
  Batch batch{{"z", at::ones({1})}};
  batch.insert("a", at::ones({1}));
  batch.set("m", at::ones({1}));
  batch.set("z", at::zeros({1}));
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"z", "a", "m"}));
  EXPECT_EQ(batch["z"].item<float>(), 0.0F);
}

TEST(Batch, CountsRows) {
  EXPECT_EQ(two().size(), 3);
  EXPECT_EQ(Batch().size(), 0);
  EXPECT_EQ((Batch{{"scalar", at::scalar_tensor(1)}}.size()), 0);
}

TEST(Batch, ReadingAnUnknownNameListsTheKnownOnes) {
  EXPECT_THROWS(two()["lable"], UsageError, "no tensor named 'lable'", "'image', 'label'");
  EXPECT_THROWS(Batch()["x"], UsageError, "the batch is empty");
  EXPECT_FALSE(two().contains("lable"));
}

TEST(Batch, RefusesANameTwice) {
  Batch batch = two();
  EXPECT_THROWS(batch.insert("image", at::ones({3})), UsageError, "'image'", "set()");
  EXPECT_THROWS((Batch{{"x", at::ones({1})}, {"x", at::ones({1})}}), UsageError, "'x'");
}

TEST(Batch, HasTextsAsWellAsTensors) {
  Batch batch = two();
  batch.set_texts("name", {"a", "b", "c"});
  batch.set_texts("name", {"x", "y", "z"});
  EXPECT_EQ(batch.texts("name"), (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_EQ(batch.to(at::Device(at::kMeta)).texts("name").size(), 3U);
  EXPECT_EQ(batch.names().size(), 2U);
  EXPECT_EQ(batch.text_items().size(), 1U);
  EXPECT_FALSE(batch.contains("name"));
  EXPECT_THROWS(batch["name"], UsageError, "'name' of the batch is texts", "texts()");
  EXPECT_THROWS(batch.texts("nmae"), UsageError, "no texts named 'nmae'", "'name'", "'image', 'label'");
  EXPECT_THROWS(batch.set_texts("image", {}), UsageError, "a tensor named 'image'");
  EXPECT_THROWS(batch.set("name", at::ones({3})), UsageError, "texts named 'name'");
  EXPECT_THROWS(batch.insert("name", at::ones({3})), UsageError, "texts named 'name'");
  Batch texts;
  texts.set_texts("name", {"a", "b"});
  EXPECT_FALSE(texts.empty());
  EXPECT_EQ(texts.size(), 2);
}

TEST(Batch, CountsTheRowsOfListsThatAreNotPadded) {
  EXPECT_EQ((Batch{{"x", at::arange(9)}, {"x_offsets", at::tensor({0, 4, 4, 9}, at::kLong)}}.size()), 3);
}

TEST(Batch, MovesToADeviceAndKeepsIndices) {
  Batch batch = two();
  batch.indices = {4, 5, 6};
  const Batch moved = batch.to(at::Device(at::kMeta));
  EXPECT_TRUE(moved["image"].is_meta());
  EXPECT_TRUE(moved["label"].is_meta());
  EXPECT_FALSE(batch["image"].is_meta());
  EXPECT_EQ(moved.indices, batch.indices);
}

Example sample(std::int64_t index, at::Tensor image) {
  Example example{{"image", std::move(image)}, {"label", at::scalar_tensor(index, at::kLong)}};
  example.indices = {index};
  return example;
}

Example named(std::int64_t index, const std::string& name, std::int64_t words) {
  Example example{{"words", at::full({words}, index, at::kLong)}, {"label", at::scalar_tensor(index)}};
  example.set_texts("name", {name});
  example.indices = {index};
  return example;
}

TEST(DefaultCollate, TextsGoOneAfterAnother) {
  const Batch batch = default_collate({named(4, "b", 2), named(1, "", 2)});
  EXPECT_EQ(batch.texts("name"), (std::vector<std::string>{"b", ""}));
  EXPECT_THROWS(default_collate({named(4, "b", 2), sample(7, at::ones({2}))}), DataError, "sample 7");
  auto without = named(3, "", 2);
  Example other{{"words", without["words"]}, {"label", without["label"]}};
  EXPECT_THROWS(default_collate({without, other}), DataError, "a text named 'name'");
}

TEST(JaggedCollate, JoinsListsAndStacksTheRest) {
  const auto collate = jagged_collate({"words"});
  const Batch batch = collate({named(5, "a", 2), named(6, "b", 0), named(7, "c", 3)});
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"label", "words", "words_offsets"}));
  EXPECT_TRUE(at::equal(batch["words"], at::tensor({5, 5, 7, 7, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(batch["words_offsets"], at::tensor({0, 2, 2, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(batch["label"], at::tensor({5.0F, 6.0F, 7.0F})));
  EXPECT_EQ(batch.texts("name").back(), "c");
  EXPECT_EQ(batch.indices, (std::vector<std::int64_t>{5, 6, 7}));
  EXPECT_EQ(batch.size(), 3);
  EXPECT_THROWS(jagged_collate({"label"})({named(5, "a", 2)}), DataError, "sample 5", "no list 'label'");
  EXPECT_THROWS(jagged_collate({"x"})({named(5, "a", 2)}), DataError, "'x'");
  EXPECT_THROWS(jagged_collate({"x"})({Batch{{"x", at::ones({2, 2})}}, Batch{{"x", at::ones({1, 3})}}}),
                DataError, "cannot join 'x'", "[1, 3]", "[2, 2]");
  EXPECT_THROWS(jagged_collate({"x"})({Batch{{"x", at::ones({2})}}, Batch{{"x", at::ones({2}, at::kLong)}}}),
                DataError, "cannot join 'x'", "long", "float");
}

TEST(DefaultCollate, StacksByName) {
  const Batch batch = default_collate({sample(7, at::ones({2, 2})), sample(3, at::zeros({2, 2}))});
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"image", "label"}));
  EXPECT_EQ(batch["image"].sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_TRUE(at::equal(batch["label"], at::tensor({7, 3}, at::kLong)));
  EXPECT_EQ(batch.indices, (std::vector<std::int64_t>{7, 3}));
}

TEST(DefaultCollate, NamesTheSampleAndBothShapes) {
  EXPECT_THROWS(default_collate({sample(7, at::ones({2, 2})), sample(3, at::ones({2, 5}))}), DataError,
                "sample 3", "[2, 5]", "sample 7", "[2, 2]", "'image'");
}

TEST(DefaultCollate, RefusesOtherDtypesAndUndefinedTensors) {
  EXPECT_THROWS(default_collate({sample(1, at::ones({2})), sample(2, at::ones({2}, at::kLong))}), DataError,
                "sample 2", "long");
  EXPECT_THROWS(default_collate({sample(1, at::Tensor())}), DataError, "undefined");
}

TEST(DefaultCollate, RefusesOtherNamesEitherWay) {
  Example more = sample(9, at::ones({2}));
  more.insert("mask", at::ones({2}));
  EXPECT_THROWS(default_collate({sample(1, at::ones({2})), more}), DataError, "sample 9", "'mask'");
  EXPECT_THROWS(default_collate({more, sample(1, at::ones({2}))}), DataError, "sample 1", "'mask'");
  EXPECT_THROWS(default_collate({}), UsageError, "no samples");
}

}  // namespace
}  // namespace lockstep
