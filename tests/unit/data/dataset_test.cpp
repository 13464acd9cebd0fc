#include "lockstep/data/dataset.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

std::shared_ptr<const Dataset> ten_rows() {
  return std::make_shared<TensorDataset>(
      Batch{{"x", at::arange(20).reshape({10, 2})}, {"y", at::arange(10)}});
}

/// Sample i is the number i and its seed; sample 5 fails.
class Counting final : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  Example get(std::int64_t index, const SampleContext& context) const override {
    if (index == 5) throw std::runtime_error("the disk is on fire");
    return {{"index", at::scalar_tensor(index, at::kLong)},
            {"seed", at::scalar_tensor(static_cast<std::int64_t>(context.seed), at::kLong)}};
  }
};

TEST(TensorDataset, GivesRowsAndGathersBatches) {
  const auto dataset = ten_rows();
  EXPECT_EQ(dataset->size(), 10);
  EXPECT_TRUE(at::equal(dataset->get(3, {})["x"], at::tensor({6, 7}, at::kLong)));
  EXPECT_EQ(dataset->get(3, {})["y"].dim(), 0);
  const std::vector<std::int64_t> rows{9, 0, 9};
  const Batch batch = dataset->get_batch(rows, std::vector<SampleContext>(3));
  EXPECT_TRUE(at::equal(batch["y"], at::tensor({9, 0, 9}, at::kLong)));
  EXPECT_EQ(batch.indices, rows);
}

TEST(TensorDataset, ItsGatherEqualsTheDefault) {
  const auto dataset = ten_rows();
  const std::vector<std::int64_t> rows{2, 8, 4};
  const std::vector<SampleContext> contexts(3);
  const Batch fast = dataset->get_batch(rows, contexts);
  const Batch plain = dataset->Dataset::get_batch(rows, contexts);
  for (const auto& name : plain.names()) EXPECT_TRUE(at::equal(fast[name], plain[name]));
  EXPECT_EQ(fast.indices, plain.indices);
}

TEST(TensorDataset, RefusesWhatHasNoCommonRows) {
  EXPECT_THROWS(TensorDataset(Batch()), UsageError, "at least one tensor");
  EXPECT_THROWS(TensorDataset({{"x", at::scalar_tensor(1)}}), UsageError, "'x'", "scalar");
  EXPECT_THROWS(TensorDataset({{"x", at::ones({3})}, {"y", at::ones({4})}}), UsageError, "'y' has 4 rows",
                "'x' has 3");
}

TEST(TensorDataset, RefusesIndicesOutOfRange) {
  const auto dataset = ten_rows();
  EXPECT_THROWS(dataset->get(10, {}), UsageError, "sample 10", "10 samples");
  EXPECT_THROWS(dataset->get(-1, {}), UsageError, "sample -1");
  const std::vector<std::int64_t> rows{1, 10};
  EXPECT_THROWS(dataset->get_batch(rows, std::vector<SampleContext>(2)), UsageError, "sample 10");
}

TEST(Dataset, TheDefaultBatchPassesContextsAndNamesTheFailingSample) {
  const Counting dataset;
  const std::vector<std::int64_t> good{1, 4};
  const std::vector<SampleContext> contexts{{.seed = 11}, {.seed = 12}};
  EXPECT_TRUE(at::equal(dataset.get_batch(good, contexts)["seed"], at::tensor({11, 12}, at::kLong)));
  const std::vector<std::int64_t> bad{1, 5};
  EXPECT_THROWS(dataset.get_batch(bad, contexts), DataError, "sample 5", "the disk is on fire");
}

TEST(Dataset, NestsTheFirstException) {
  try {
    Counting().get_named(5, {});
    FAIL() << "expected an exception";
  } catch (const std::nested_exception& error) {
    EXPECT_THROW(error.rethrow_nested(), std::runtime_error);
  }
}

TEST(Subset, MapsIndices) {
  const Subset subset(ten_rows(), {7, 2, 2});
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.get(0, {})["y"].item<std::int64_t>(), 7);
  const std::vector<std::int64_t> rows{2, 0};
  const Batch batch = subset.get_batch(rows, std::vector<SampleContext>(2));
  EXPECT_TRUE(at::equal(batch["y"], at::tensor({2, 7}, at::kLong)));
  EXPECT_EQ(batch.indices, rows);
}

TEST(Subset, RefusesIndicesOutOfRange) {
  EXPECT_THROWS(Subset(ten_rows(), {3, 10}), UsageError, "sample 10");
  EXPECT_THROWS(Subset(nullptr, {}), UsageError, "no data set");
  EXPECT_THROWS(Subset(ten_rows(), {3}).get(1, {}), UsageError, "sample 1", "1 samples");
}

TEST(RandomSplit, CoversTheDataSetOnce) {
  const std::vector<std::int64_t> lengths{6, 0, 4};
  const auto parts = random_split(ten_rows(), lengths, 3);
  ASSERT_EQ(parts.size(), 3U);
  std::set<std::int64_t> seen;
  for (const auto& part : parts) seen.insert(part->indices().begin(), part->indices().end());
  EXPECT_EQ(parts[0]->size(), 6);
  EXPECT_EQ(parts[1]->size(), 0);
  EXPECT_EQ(seen.size(), 10U);
  const auto same = random_split(ten_rows(), {6, 0, 4}, 3);
  EXPECT_EQ(same[2]->indices(), parts[2]->indices());
}

TEST(RandomSplit, RefusesLengthsThatDoNotAddUp) {
  const auto split = [](std::vector<std::int64_t> lengths) { return random_split(ten_rows(), lengths, 0); };
  EXPECT_THROWS(split({5, 4}), UsageError, "[5, 4]", "10");
  EXPECT_THROWS(split({11, -1}), UsageError, "[11, -1]");
  EXPECT_THROWS(split({-1, 11}), UsageError, "[-1, 11]");
  EXPECT_THROWS(split({}), UsageError, "[]");
  EXPECT_THROWS(split({INT64_MAX, INT64_MAX, 12}), UsageError, "add up");
}

/// The expected parts are those of torch.utils.data.random_split.
TEST(RandomSplit, TakesFractions) {
  using Parts = std::vector<std::vector<std::int64_t>>;
  const auto split = [](std::int64_t size, const std::vector<double>& fractions) {
    const auto rows = std::make_shared<TensorDataset>(Batch{{"x", at::arange(size)}});
    Parts parts;
    for (const auto& part : random_split(rows, fractions, 42)) parts.push_back(part->indices());
    return parts;
  };
  EXPECT_EQ(split(10, {0.3, 0.3, 0.4}), (Parts{{2, 6, 1}, {8, 4, 5}, {0, 9, 3, 7}}));
  EXPECT_EQ(split(7, {0.5, 0.5}), (Parts{{1, 6, 3, 5}, {4, 0, 2}}));
  EXPECT_EQ(split(11, {0.25, 0.25, 0.25, 0.25}), (Parts{{6, 8, 9}, {2, 1, 10}, {0, 7, 3}, {5, 4}}));
  EXPECT_EQ(split(3, {1.0, 0.0}), (Parts{{0, 2, 1}, {}}));
  EXPECT_EQ(split(10, {0.7, 0.2, 0.1}), (Parts{{2, 6, 1, 8, 4, 5, 0}, {9, 3}, {7}}));
  EXPECT_EQ(random_split(ten_rows(), {0.5, 0.5}, 42)[1]->size(), 5);
  EXPECT_THROWS(split(10, {0.5, 0.4}), UsageError, "[0.5, 0.4]", "add up to 1");
  EXPECT_THROWS(split(10, {1.5, -0.5}), UsageError, "[1.5, -0.5]");
  EXPECT_THROWS(split(10, {std::nan(""), 1}), UsageError, "nan");
  EXPECT_THROWS(split(10, {}), UsageError, "[]");
}

TEST(SampleSeed, DiffersByLoaderSeedEpochAndIndex) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
      for (std::int64_t index = 0; index < 100; ++index) seeds.insert(sample_seed(seed, epoch, index));
    }
  }
  EXPECT_EQ(seeds.size(), 4U * 8U * 100U);
  EXPECT_EQ(sample_seed(1, 2, 3), sample_seed(1, 2, 3));
}

}  // namespace
}  // namespace lockstep
