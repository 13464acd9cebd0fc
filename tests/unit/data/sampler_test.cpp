#include "lockstep/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

TEST(DistributedSampler, PadsWithTheBeginning) {
  const DistributedSampler sampler(5, {.num_replicas = 3, .rank = 2, .shuffle = false});
  EXPECT_EQ(sampler.size(), 2);
  EXPECT_EQ(sampler.indices(), (Indices{2, 0}));
}

TEST(DistributedSampler, RepeatsATinyDataSetAsOftenAsNeeded) {
  const DistributedSampler sampler(2, {.num_replicas = 5, .rank = 4, .shuffle = false});
  EXPECT_EQ(sampler.indices(), (Indices{0}));
}

TEST(DistributedSampler, FewerSamplesThanRanksWithDropLastIsEmpty) {
  const DistributedSampler sampler(2, {.num_replicas = 5, .rank = 0, .drop_last = true});
  EXPECT_EQ(sampler.size(), 0);
  EXPECT_TRUE(sampler.indices().empty());
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
  DistributedSampler sampler(4, {.seed = std::numeric_limits<std::uint64_t>::max()});
  EXPECT_EQ(sampler.indices().size(), 4U);
  sampler.set_epoch(1);
  EXPECT_THROWS(sampler.indices(), UsageError, "18446744073709551615", "epoch 1");
}

TEST(Sampler, KeepsItsPositionWithinAnEpoch) {
  DistributedSampler sampler(10, {.seed = 4});
  const auto whole = sampler.indices();
  sampler.advance(3);
  EXPECT_EQ(sampler.remaining(), Indices(whole.begin() + 3, whole.end()));
  EXPECT_EQ(sampler.indices(), whole);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.position(), 3);
  sampler.set_epoch(2);
  EXPECT_EQ(sampler.position(), 0);
  EXPECT_NE(sampler.indices(), whole);
}

TEST(Sampler, RefusesToAdvancePastTheEnd) {
  DistributedSampler sampler(10);
  sampler.advance(10);
  EXPECT_TRUE(sampler.remaining().empty());
  EXPECT_THROWS(sampler.advance(1), UsageError, "position 10 of 10");
  EXPECT_THROWS(sampler.advance(-1), UsageError, "-1");
  EXPECT_THROWS(sampler.set_epoch(-3), UsageError, "-3");
  sampler.rewind();
  EXPECT_EQ(sampler.remaining().size(), 10U);
}

TEST(Sampler, AStateContinuesTheSameOrder) {
  DistributedSampler first(100, {.num_replicas = 3, .rank = 1, .seed = 7});
  first.set_epoch(5);
  first.advance(11);
  DistributedSampler second(100, {.num_replicas = 3, .rank = 1, .seed = 7});
  second.load_state(first.state());
  EXPECT_EQ(second.epoch(), 5);
  EXPECT_EQ(second.remaining(), first.remaining());
}

TEST(Sampler, RefusesTheStateOfAnotherOrderAndStaysAsItWas) {
  DistributedSampler sampler(100, {.seed = 7});
  sampler.advance(2);
  EXPECT_THROWS(sampler.load_state({.seed = 8, .length = 100}), UsageError, "seed is 8", "is 7");
  EXPECT_THROWS(sampler.load_state({.seed = 7, .length = 99}), UsageError, "length is 99", "is 100");
  EXPECT_THROWS(sampler.load_state({.seed = 7, .position = 101, .length = 100}), UsageError, "101",
                "100 samples");
  EXPECT_THROWS(sampler.load_state({.seed = 7, .position = -1, .length = 100}), UsageError, "-1");
  EXPECT_THROWS(sampler.load_state({.seed = 7, .epoch = -1, .length = 100}), UsageError, "epoch");
  EXPECT_EQ(sampler.position(), 2);
  EXPECT_EQ(sampler.epoch(), 0);
}

}  // namespace
}  // namespace lockstep
