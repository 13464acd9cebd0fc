#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "support/throws.hpp"
#include "unit/data/probe.hpp"

namespace lockstep {
namespace {

using testing::Indices;
using testing::probe;
using testing::read_pass;
using testing::read_some;

TEST(DataLoaderState, ShardsAsPyTorchsSamplerDoes) {
  const DataLoader whole(probe(50), {.batch_size = 4, .shuffle = true, .seed = 8});
  for (int rank = 0; rank < 3; ++rank) {
    DataLoader part = whole.shard(3, rank);
    EXPECT_EQ(part.size(), 5);
    EXPECT_EQ(read_pass(part),
              DistributedSampler(50, {.num_replicas = 3, .rank = rank, .seed = 8}).indices());
  }
}

TEST(DataLoaderState, ShardsKeepEpochAndPosition) {
  DataLoader whole(probe(48), {.batch_size = 4, .shuffle = true});
  whole.set_epoch(2);
  read_some(whole, 4);
  DataLoader part = whole.shard(2, 1);
  EXPECT_EQ(part.epoch(), 2);
  EXPECT_EQ(part.position(), 2);
  EXPECT_EQ(whole.position(), 4);
  EXPECT_THROWS(whole.shard(3, 0), UsageError, "16 samples", "4 x 3");
}

TEST(DataLoaderState, RefusesToShardTwiceOrOverAnOrderOfItsOwn) {
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 0).shard(2, 0), UsageError, "already");
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 2), UsageError, "rank");
  const auto order = std::make_shared<DistributedSampler>(5);
  EXPECT_THROWS(DataLoader(probe(5), {.sampler = order}).shard(2, 0), UsageError, "sampler of its own");
}

TEST(DataLoaderState, UsesASamplerOfOnesOwn) {
  const auto order = std::make_shared<DistributedSampler>(
      9, DistributedSamplerOptions{.num_replicas = 2, .rank = 1, .seed = 4});
  DataLoader loader(probe(9), {.batch_size = 2, .sampler = order});
  EXPECT_EQ(read_pass(loader), order->epoch_indices(0));
  EXPECT_EQ(order->epoch(), 1);
  EXPECT_THROWS(DataLoader(probe(8), {.sampler = order}), UsageError, "9 samples", "8");
}

TEST(DataLoaderState, AStateMovesToAnotherNumberOfRanks) {
  DataLoader two = DataLoader(probe(64), {.batch_size = 4, .shuffle = true}).shard(2, 0);
  read_some(two, 2);
  DataLoader four = DataLoader(probe(64), {.batch_size = 2, .shuffle = true}).shard(4, 3);
  four.load_state(two.state());
  EXPECT_EQ(four.position(), 2);
  DataLoader odd = DataLoader(probe(64), {.batch_size = 5, .shuffle = true}).shard(1, 0);
  EXPECT_THROWS(odd.load_state(two.state()), UsageError, "16 samples", "5 x 1");
  EXPECT_EQ(odd.position(), 0);
}

TEST(DataLoaderState, RefusesTheStateOfAnotherRun) {
  DataLoader loader(probe(10), {.batch_size = 2, .seed = 3});
  auto state = loader.state();
  state.position = 6;
  EXPECT_THROWS(loader.load_state(state), UsageError, "batch 6", "5 batches");
  state.position = -1;
  EXPECT_THROWS(loader.load_state(state), UsageError, "-1");
  state.position = INT64_MAX;
  state.num_replicas = 2;
  EXPECT_THROWS(loader.load_state(state), UsageError, "damaged");
  state = loader.state();
  state.seed = 4;
  EXPECT_THROWS(loader.load_state(state), UsageError, "seed");
}

}  // namespace
}  // namespace lockstep
