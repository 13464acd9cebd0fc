#include "lockstep/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

TEST(DistributedSampler, PadsWithTheBeginning) {
  const DistributedSampler sampler(5, {.num_replicas = 3, .rank = 2, .shuffle = false});
  EXPECT_EQ(sampler.size(), 2);
  EXPECT_EQ(sampler.epoch_indices(0), (Indices{2, 0}));
}

TEST(DistributedSampler, RepeatsATinyDataSetAsOftenAsNeeded) {
  const DistributedSampler sampler(2, {.num_replicas = 5, .rank = 4, .shuffle = false});
  EXPECT_EQ(sampler.epoch_indices(0), (Indices{0}));
}

TEST(DistributedSampler, FewerSamplesThanRanksWithDropLastIsEmpty) {
  const DistributedSampler sampler(2, {.num_replicas = 5, .rank = 0, .drop_last = true});
  EXPECT_EQ(sampler.size(), 0);
  EXPECT_TRUE(sampler.epoch_indices(0).empty());
}

TEST(DistributedSampler, RanksTogetherReadEverySample) {
  Indices all;
  for (int rank = 0; rank < 4; ++rank) {
    const auto mine = DistributedSampler(103, {.num_replicas = 4, .rank = rank, .seed = 9}).epoch_indices(2);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 104U);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), 103U);
}

TEST(DistributedSampler, RefusesWhatPyTorchRefuses) {
  EXPECT_THROWS(DistributedSampler(4, {.num_replicas = 2, .rank = 2}), UsageError, "rank", "0 to 1", "2");
  EXPECT_THROWS(DistributedSampler(4, {.num_replicas = 2, .rank = -1}), UsageError, "rank", "-1");
  EXPECT_THROWS(DistributedSampler(4, {.num_replicas = 0, .rank = 0}), UsageError, "num_replicas");
  EXPECT_THROWS(DistributedSampler(-1), UsageError, "-1");
}

TEST(DistributedSampler, RefusesASeedPastTheLargest) {
  const DistributedSampler sampler(4, {.seed = std::numeric_limits<std::uint64_t>::max()});
  EXPECT_EQ(sampler.epoch_indices(0).size(), 4U);
  EXPECT_THROWS(sampler.epoch_indices(1), UsageError, "18446744073709551615", "epoch 1");
  EXPECT_THROWS(sampler.epoch_indices(-1), UsageError, "-1");
}

TEST(Sampler, EveryKindGivesAsManyIndicesAsItSays) {
  const std::vector<std::shared_ptr<const Sampler>> samplers{
      std::make_shared<SequentialSampler>(9),
      std::make_shared<RandomSampler>(9, RandomSamplerOptions{.num_samples = 21}),
      std::make_shared<RandomSampler>(9, RandomSamplerOptions{.replacement = true, .num_samples = 40}),
      std::make_shared<WeightedRandomSampler>(std::vector<double>{1, 0, 2},
                                              WeightedSamplerOptions{.num_samples = 7}),
      std::make_shared<SubsetRandomSampler>(9, Indices{8, 2, 3}),
      std::make_shared<LengthGroupedSampler>(Indices{3, 1, 2}, LengthGroupedOptions{.batch_size = 2}),
      std::make_shared<DistributedSampler>(9, DistributedSamplerOptions{.num_replicas = 2})};
  std::set<std::string> kinds;
  for (const auto& sampler : samplers) {
    EXPECT_EQ(static_cast<std::int64_t>(sampler->epoch_indices(3).size()), sampler->size())
        << sampler->kind();
    EXPECT_EQ(sampler->epoch_indices(3), sampler->epoch_indices(3)) << sampler->kind();
    EXPECT_THROWS(sampler->epoch_indices(-1), UsageError, "-1");
    kinds.insert(sampler->kind());
  }
  EXPECT_EQ(kinds.size(), samplers.size());
}

TEST(Sampler, EmptyDataSetsAreEmptyEpochs) {
  EXPECT_TRUE(RandomSampler(0).epoch_indices(0).empty());
  EXPECT_TRUE(SequentialSampler(0).epoch_indices(0).empty());
  EXPECT_TRUE(WeightedRandomSampler({}).epoch_indices(0).empty());
  EXPECT_TRUE(SubsetRandomSampler(0, {}).epoch_indices(0).empty());
  EXPECT_TRUE(LengthGroupedSampler({}, {.batch_size = 4}).epoch_indices(0).empty());
}

TEST(Sampler, RefusesWhatCannotBeDrawn) {
  EXPECT_THROWS(RandomSampler(0, {.num_samples = 3}), UsageError, "num_samples is 3");
  EXPECT_THROWS(RandomSampler(5, {.num_samples = -1}), UsageError, "-1");
  EXPECT_THROWS(WeightedRandomSampler({1, -2}), UsageError, "weight 1", "-2");
  EXPECT_THROWS(WeightedRandomSampler({1, std::numeric_limits<double>::infinity()}), UsageError, "weight 1");
  EXPECT_THROWS(WeightedRandomSampler({0, 0}), UsageError, "num_samples is 2", "0 to 0");
  EXPECT_THROWS(WeightedRandomSampler({1, 0, 1}, {.num_samples = 3, .replacement = false}), UsageError,
                "0 to 2");
  EXPECT_THROWS(SubsetRandomSampler(5, {4, 5}), UsageError, "index 5", "5 samples");
  EXPECT_THROWS(LengthGroupedSampler({1, 2}, {.batch_size = 0}), UsageError, "batch_size", "0");
}

}  // namespace
}  // namespace lockstep
