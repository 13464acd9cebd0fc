#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
              DistributedSampler(50, {.num_replicas = 3, .rank = rank, .seed = 8}).epoch_indices(0));
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
  EXPECT_EQ(part.total_batch_size(), 8);
}

/// Batches of 3, 1, 2, 1 and 2 samples, which begin at the epoch's number.
class UnevenBatches final : public BatchSampler {
 public:
  std::int64_t size() const override { return 5; }
  std::vector<Indices> epoch_batches(std::int64_t epoch) const override {
    if (epoch == 7) return {{0}, {}, {1}, {2}, {3}};
    if (epoch == 8) return {{0}};
    return {{epoch, 1, 2}, {3}, {4, 5}, {6}, {7, 8}};
  }
  std::string kind() const override { return "uneven batches"; }
};

/// The batches of a pass; those that are only repeated are empty.
std::vector<Indices> batches_of(DataLoader& loader) {
  std::vector<Indices> batches;
  for (auto& batch : loader) {
    EXPECT_EQ(testing::tensor_indices(batch), batch.indices);
    EXPECT_EQ(std::set<bool>(batch.valid.begin(), batch.valid.end()).size(), 1U);
    batches.push_back(batch.valid.front() ? batch.indices : Indices{});
  }
  return batches;
}

TEST(BatchSampler, ItsBatchesAreReadAndDealtWhole) {
  const auto sampler = std::make_shared<UnevenBatches>();
  for (const int workers : {0, 2}) {
    DataLoader whole(probe(9), {.num_workers = workers, .batch_sampler = sampler});
    EXPECT_EQ(whole.size(), 5);
    EXPECT_EQ(batches_of(whole), sampler->epoch_batches(0));
    EXPECT_EQ(batches_of(whole), sampler->epoch_batches(1));
  }
  const DataLoader whole(probe(9), {.batch_sampler = sampler});
  DataLoader first = whole.shard(2, 0), second = whole.shard(2, 1);
  EXPECT_EQ(batches_of(first), (std::vector<Indices>{{0, 1, 2}, {4, 5}, {7, 8}}));
  EXPECT_EQ(batches_of(second), (std::vector<Indices>{{3}, {6}, {}})) << "the first batch is repeated";
  DataLoader uneven = whole.shard(2, 1, at::kCPU, {.even_batches = false});
  EXPECT_EQ(batches_of(uneven), (std::vector<Indices>{{3}, {6}}));
}

TEST(BatchSampler, ResumesOnAnotherNumberOfRanks) {
  const auto sampler = std::make_shared<UnevenBatches>();
  DataLoader part = DataLoader(probe(9), {.batch_sampler = sampler}).shard(2, 0);
  EXPECT_EQ(read_some(part, 1), (Indices{0, 1, 2}));
  EXPECT_EQ(part.state().samples, 2);
  DataLoader whole(probe(9), {.batch_sampler = sampler});
  whole.load_state(part.state());
  EXPECT_EQ(batches_of(whole), (std::vector<Indices>{{4, 5}, {6}, {7, 8}}));
  EXPECT_THROWS(DataLoader(probe(9)).load_state(part.state()), UsageError, "uneven batches", "sequential");
}

TEST(BatchSampler, WrongUseIsRefused) {
  const auto sampler = std::make_shared<UnevenBatches>();
  EXPECT_THROWS(DataLoader(probe(9), {.batch_size = 4, .batch_sampler = sampler}), UsageError,
                "batch_sampler makes the batches");
  DataLoader loader(probe(9), {.batch_sampler = sampler});
  EXPECT_THROWS(loader.shard(2, 0, at::kCPU, {.split_batches = true}), UsageError, "split_batches");
  read_some(loader, 1);
  EXPECT_THROWS(loader.with_options({.batch_size = 2}), UsageError, "in the middle of an epoch");
  loader.set_epoch(7);
  EXPECT_THROWS(loader.begin(), UsageError, "batch 1 of epoch 7 is empty");
  loader.set_epoch(8);
  EXPECT_THROWS(loader.begin(), UsageError, "gives 1 batches in epoch 8", "size() is 5");
}

TEST(DataLoaderState, RefusesToShardTwice) {
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 0).shard(2, 0), UsageError, "loader is divided", "2 ranks");
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 2), UsageError, "rank");
  const auto order = std::make_shared<DistributedSampler>(5, DistributedSamplerOptions{.num_replicas = 3});
  EXPECT_THROWS(DataLoader(probe(5), {.sampler = order}).shard(2, 0), UsageError, "sampler is divided",
                "3 ranks");
  EXPECT_THROWS(DataLoader(probe(5), {.batch_size = 3}).shard(2, 0, at::kCPU, {.split_batches = true}),
                UsageError, "split_batches", "3");
}

TEST(DataLoaderState, UsesASamplerOfOnesOwn) {
  const auto order = std::make_shared<DistributedSampler>(
      9, DistributedSamplerOptions{.num_replicas = 2, .rank = 1, .seed = 4});
  DataLoader loader(probe(9), {.batch_size = 2, .sampler = order});
  EXPECT_EQ(read_pass(loader), order->epoch_indices(0));
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(read_pass(loader), order->epoch_indices(1));
  EXPECT_THROWS(DataLoader(probe(8), {.sampler = order}), UsageError, "9 samples", "8");
}

TEST(DataLoaderState, DividesASamplerOfOnesOwnByBatches) {
  const auto order = std::make_shared<WeightedRandomSampler>(std::vector<double>{1, 2, 3, 4, 5},
                                                             WeightedSamplerOptions{.num_samples = 8});
  const DataLoader whole(probe(5), {.batch_size = 2, .sampler = order});
  DataLoader first = whole.shard(2, 0, at::kCPU, {.sharding = Sharding::by_batch});
  DataLoader second = whole.shard(2, 1, at::kCPU, {.sharding = Sharding::by_batch});
  const auto all = order->epoch_indices(0);
  EXPECT_EQ(read_pass(first), (Indices{all[0], all[1], all[4], all[5]}));
  EXPECT_EQ(read_pass(second), (Indices{all[2], all[3], all[6], all[7]}));
}

TEST(DataLoaderState, RepeatedRowsAreMarked) {
  const DataLoader whole(probe(5), {.batch_size = 2});
  DataLoader second = whole.shard(2, 1, at::kCPU, {.sharding = Sharding::by_batch});
  std::vector<std::vector<bool>> valid;
  for (auto& batch : second) {
    valid.push_back(batch.valid);
    EXPECT_EQ(batch.valid_mask().sum().item<std::int64_t>(),
              std::count(batch.valid.begin(), batch.valid.end(), true));
  }
  EXPECT_EQ(valid, (std::vector<std::vector<bool>>{{true, true}, {false, false}}));
}

/// What `ranks` ranks read of what is left when each loads `state`.
Indices read_left(const DataLoaderState& state, int ranks, std::int64_t batch_size, Sharding sharding) {
  Indices all;
  for (int rank = 0; rank < ranks; ++rank) {
    DataLoader part = DataLoader(probe(61), {.batch_size = batch_size, .shuffle = true})
                          .shard(ranks, rank, at::kCPU, {.sharding = sharding});
    part.load_state(state);
    for (auto& batch : part) {
      for (std::size_t row = 0; row < batch.indices.size(); ++row) {
        if (batch.valid[row]) all.push_back(batch.indices[row]);
      }
    }
    EXPECT_EQ(part.epoch(), 1);
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(DataLoaderState, AnotherWorldAndBatchSizeReadExactlyWhatIsLeft) {
  Indices seen;
  DataLoaderState state;
  for (int rank = 0; rank < 3; ++rank) {
    DataLoader part = DataLoader(probe(61), {.batch_size = 4, .shuffle = true}).shard(3, rank);
    const auto mine = read_some(part, 2);
    seen.insert(seen.end(), mine.begin(), mine.end());
    state = part.state();
  }
  EXPECT_EQ(state.samples, 24);
  std::sort(seen.begin(), seen.end());
  const auto whole = SequentialSampler(61).epoch_indices(0);
  Indices left;
  std::set_difference(whole.begin(), whole.end(), seen.begin(), seen.end(), std::back_inserter(left));
  for (const auto sharding : {Sharding::by_sample, Sharding::by_batch}) {
    for (const int ranks : {1, 2, 3, 5}) EXPECT_EQ(read_left(state, ranks, 7, sharding), left);
  }
}

TEST(DataLoaderState, SkippedBatchesAreNotRead) {
  const auto dataset = probe(20);
  DataLoader loader(dataset, {.batch_size = 4});
  loader.skip_batches(3);
  EXPECT_EQ(dataset->reads, 0);
  EXPECT_EQ(read_pass(loader), (Indices{12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_THROWS(loader.skip_batches(6), UsageError, "6 batches", "5 of 5");
  loader.skip_batches(5);
  EXPECT_TRUE(read_pass(loader).empty());
  EXPECT_EQ(loader.epoch(), 2);
}

/// A data set that knows more of itself than its size.
class Named final : public Dataset {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::int64_t size() const override { return 10; }
  Example get(std::int64_t, const SampleContext&) const override { return {{"x", at::zeros({})}}; }
  std::string fingerprint() const override { return name_; }

 private:
  std::string name_;
};

TEST(DataLoaderState, RefusesTheStateOfOtherDataByName) {
  const DataLoader monday(std::make_shared<Named>("news, fingerprint 17"));
  DataLoader tuesday(std::make_shared<Named>("news, fingerprint 18"));
  EXPECT_THROWS(tuesday.load_state(monday.state()), UsageError, "fingerprint 17", "fingerprint 18");
  DataLoader nameless(probe(10));
  tuesday.load_state(nameless.state());
  const std::vector<std::int64_t> one{1, 2}, other{2, 1};
  EXPECT_NE(Subset(probe(10), one).fingerprint(), Subset(probe(10), other).fingerprint());
  EXPECT_EQ(Subset(probe(10), one).fingerprint(), Subset(probe(10), one).fingerprint());
}

/// Samplers of one kind, seed and size, whose orders are other ones all the same.
TEST(DataLoaderState, RefusesTheStateOfASamplerWithOtherSettings) {
  const Indices lengths{5, 1, 4, 2, 8, 3, 7, 6};
  const auto loader_of = [](std::shared_ptr<const Sampler> sampler) {
    return DataLoader(probe(8), {.batch_size = 2, .sampler = std::move(sampler)});
  };
  const auto grouped = [&](std::int64_t batch) {
    return loader_of(
        std::make_shared<LengthGroupedSampler>(lengths, LengthGroupedOptions{.batch_size = batch}));
  };
  const auto weighted = [&](double first) {
    return loader_of(
        std::make_shared<WeightedRandomSampler>(std::vector<double>{first, 1, 1, 1, 1, 1, 1, 1}));
  };
  const auto subset = [&](std::int64_t first) {
    return loader_of(std::make_shared<SubsetRandomSampler>(8, Indices{first, 2, 3}));
  };
  const auto expect_refusal = [](DataLoader one, DataLoader other) {
    static_cast<void>(*one.begin());
    const DataLoaderState saved = one.state();
    EXPECT_THROWS(other.load_state(saved), UsageError, "its order is");
    one.load_state(saved);
    DataLoaderState of_an_earlier_version = saved;
    of_an_earlier_version.order = saved.order.substr(0, saved.order.find(','));
    one.load_state(of_an_earlier_version);
  };
  expect_refusal(grouped(2), grouped(4));
  expect_refusal(weighted(1), weighted(2));
  expect_refusal(subset(0), subset(1));
}

TEST(DataLoaderState, RefusesTheStateOfAnotherRunAndStaysAsItWas) {
  DataLoader loader(probe(10), {.batch_size = 2, .shuffle = true, .seed = 3});
  read_some(loader, 1);
  const auto good = loader.state();
  const auto refused = [&](auto change) {
    auto state = good;
    change(state);
    return testing::message_of<UsageError>([&] { loader.load_state(state); });
  };
  EXPECT_NE(refused([](auto& state) { state.samples = 11; }).find("sample 11"), std::string::npos);
  EXPECT_NE(refused([](auto& state) { state.samples = -1; }).find("sample -1"), std::string::npos);
  EXPECT_NE(refused([](auto& state) { state.epoch = -1; }).find("epoch -1"), std::string::npos);
  EXPECT_NE(refused([](auto& state) { state.seed = 4; }).find("seed is 4"), std::string::npos);
  EXPECT_NE(refused([](auto& state) { state.order = "sequential"; }).find("order is sequential"),
            std::string::npos);
  EXPECT_NE(refused([](auto& state) { state.dataset = "9 samples"; }).find("9 samples"), std::string::npos);
  EXPECT_EQ(loader.position(), 1);
}

}  // namespace
}  // namespace lockstep
