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
