#include "lockstep/data/data_loader.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

/// Gives index and seed, counts its calls, and fails or dawdles where it is told to.
class Probe final : public Dataset {
 public:
  explicit Probe(std::int64_t size, std::int64_t failing = -1) : size_(size), failing_(failing) {}

  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index, const SampleContext& context) const override {
    ++reads;
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (index == failing_) throw std::runtime_error("broken jpeg");
    return {{"index", at::scalar_tensor(index, at::kLong)},
            {"seed", at::scalar_tensor(static_cast<std::int64_t>(context.seed), at::kLong)}};
  }

  mutable std::atomic<int> reads{0};

 private:
  std::int64_t size_;
  std::int64_t failing_;
};

std::shared_ptr<const Probe> probe(std::int64_t size, std::int64_t failing = -1) {
  return std::make_shared<const Probe>(size, failing);
}

Indices read_pass(DataLoader& loader) {
  Indices indices;
  for (auto& batch : loader) indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
  return indices;
}

Indices tensor_indices(const Batch& batch) {
  const auto* first = batch["index"].const_data_ptr<std::int64_t>();
  return {first, first + batch.size()};
}

/// Reads `count` batches and leaves the loop.
Indices read_some(DataLoader& loader, std::int64_t count) {
  Indices indices;
  for (auto& batch : loader) {
    indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
    if (--count == 0) break;
  }
  return indices;
}

class Workers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataLoader, Workers, ::testing::Values(0, 1, 3));

TEST_P(Workers, ReadInOrderWithAShortLastBatch) {
  DataLoader loader(probe(10), {.batch_size = 4, .num_workers = GetParam()});
  EXPECT_EQ(loader.size(), 3);
  std::vector<Indices> batches;
  for (auto& batch : loader) {
    EXPECT_EQ(tensor_indices(batch), batch.indices);
    batches.push_back(batch.indices);
  }
  EXPECT_EQ(batches, (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
}

TEST_P(Workers, DropTheLastBatch) {
  DataLoader loader(probe(10), {.batch_size = 4, .drop_last = true, .num_workers = GetParam()});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(read_pass(loader).size(), 8U);
  EXPECT_EQ(read_pass(loader).size(), 8U);
}

TEST_P(Workers, DoNotChangeOrderNorSeeds) {
  const auto seeds = [](int workers) {
    DataLoader loader(probe(50), {.batch_size = 7, .shuffle = true, .num_workers = workers, .seed = 5});
    loader.set_epoch(2);
    std::vector<at::Tensor> all;
    for (auto& batch : loader) all.push_back(at::stack({batch["index"], batch["seed"]}));
    return at::cat(all, 1);
  };
  EXPECT_TRUE(at::equal(seeds(GetParam()), seeds(0)));
}

TEST_P(Workers, AFinishedPassRaisesTheEpoch) {
  DataLoader loader(probe(20), {.batch_size = 3, .shuffle = true, .num_workers = GetParam(), .seed = 1});
  const DistributedSampler reference(20, {.seed = 1});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    EXPECT_EQ(read_pass(loader), reference.epoch_indices(epoch));
  }
  loader.set_epoch(1);
  EXPECT_EQ(read_pass(loader), reference.epoch_indices(1));
}

TEST_P(Workers, AnEmptyDataSetIsAnEmptyPass) {
  DataLoader loader(probe(0), {.batch_size = 3, .num_workers = GetParam()});
  EXPECT_EQ(loader.size(), 0);
  EXPECT_TRUE(read_pass(loader).empty());
  EXPECT_EQ(loader.epoch(), 1);
}

TEST_P(Workers, LeavingTheLoopKeepsThePositionExactly) {
  DataLoader loader(probe(40), {.batch_size = 4, .num_workers = GetParam(), .prefetch_factor = 3});
  auto seen = read_some(loader, 3);
  EXPECT_EQ(loader.position(), 3);
  const auto rest = read_pass(loader);
  seen.insert(seen.end(), rest.begin(), rest.end());
  EXPECT_EQ(seen, DistributedSampler(40, {.shuffle = false}).indices());
  EXPECT_EQ(loader.epoch(), 1);
}

TEST_P(Workers, RewindStartsTheEpochAgain) {
  DataLoader loader(probe(12), {.batch_size = 4, .shuffle = true, .num_workers = GetParam()});
  const auto first = read_some(loader, 1);
  loader.rewind();
  EXPECT_EQ(read_some(loader, 1), first);
}

TEST_P(Workers, AStateTakenInsideTheLoopContinuesWithTheNextBatch) {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .num_workers = GetParam(), .seed = 3};
  DataLoader first(probe(42), options);
  first.set_epoch(6);
  DataLoaderState state;
  Indices after;
  std::int64_t number = 0;
  for (auto& batch : first) {
    if (number == 4) state = first.state();
    if (number > 4) after.insert(after.end(), batch.indices.begin(), batch.indices.end());
    ++number;
  }
  EXPECT_EQ(state.position, 5);
  EXPECT_EQ(state.epoch, 6);
  DataLoader second(probe(42), options);
  second.load_state(state);
  second.set_epoch(6);
  EXPECT_EQ(read_pass(second), after);
  EXPECT_EQ(second.epoch(), 7);
}

TEST_P(Workers, AStateAtTheLastBatchIsAnEmptyPass) {
  DataLoader first(probe(10), {.batch_size = 4, .num_workers = GetParam()});
  read_some(first, 3);
  EXPECT_EQ(first.state().position, 3);
  DataLoader second(probe(10), {.batch_size = 4, .num_workers = GetParam()});
  second.load_state(first.state());
  EXPECT_TRUE(read_pass(second).empty());
  EXPECT_EQ(second.epoch(), 1);
}

TEST_P(Workers, AnExceptionArrivesAtItsTurnWithTheSampleNamed) {
  DataLoader loader(probe(20, 9), {.batch_size = 4, .num_workers = GetParam()});
  std::int64_t batches = 0;
  const auto read = [&] {
    for (auto& batch : loader) batches += batch.size() > 0 ? 1 : 0;
  };
  EXPECT_THROWS(read(), DataError, "batch 2 of epoch 0", "samples 8, 9, 10, 11", "sample 9", "broken jpeg");
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(loader.position(), 2);
  EXPECT_THROWS(read(), DataError, "batch 2 of epoch 0");
}

TEST_P(Workers, APassThatFailedGoesNoFurther) {
  DataLoader loader(probe(20, 5), {.batch_size = 4, .num_workers = GetParam()});
  auto iterator = loader.begin();
  EXPECT_THROWS(++iterator, DataError, "broken jpeg");
  EXPECT_THROWS(++iterator, UsageError, "a batch failed");
}

TEST_P(Workers, CollateFunctionsAreUsedAndTheirErrorsNamed) {
  const auto pad = [](std::vector<Example> examples) {
    return Batch{{"rows", at::scalar_tensor(static_cast<std::int64_t>(examples.size()), at::kLong)}};
  };
  DataLoader loader(probe(10), {.batch_size = 4, .num_workers = GetParam(), .collate = pad});
  Indices rows;
  for (auto& batch : loader) rows.push_back(batch["rows"].item<std::int64_t>());
  EXPECT_EQ(rows, (Indices{4, 4, 2}));
  const auto fail = [](std::vector<Example>) -> Batch { throw std::logic_error("cannot pad"); };
  DataLoader failing(probe(10), {.batch_size = 4, .num_workers = GetParam(), .collate = fail});
  EXPECT_THROWS(read_pass(failing), DataError, "batch 0", "cannot pad");
  DataLoader broken(probe(10, 6), {.batch_size = 4, .num_workers = GetParam(), .collate = pad});
  EXPECT_THROWS(read_pass(broken), DataError, "sample 6", "broken jpeg");
}

TEST_P(Workers, RecordNoGradients) {
  const auto rows = std::make_shared<TensorDataset>(Batch{{"x", at::ones({6, 2}).requires_grad_()}});
  DataLoader loader(rows, {.batch_size = 2, .num_workers = GetParam()});
  for (auto& batch : loader) EXPECT_FALSE(batch["x"].requires_grad());
}

TEST_P(Workers, TheLoaderMayGoInTheMiddleOfAPass) {
  auto loader = std::make_unique<DataLoader>(probe(100), DataLoaderOptions{.num_workers = GetParam()});
  auto iterator = loader->begin();
  loader.reset();
  EXPECT_EQ(iterator->indices, Indices{0});
  EXPECT_THROWS(++iterator, UsageError, "loader was destroyed");
}

TEST_P(Workers, OnePassAtATime) {
  DataLoader loader(probe(100), {.num_workers = GetParam()});
  auto first = loader.begin();
  auto second = loader.begin();
  EXPECT_EQ(second->indices, Indices{1});
  EXPECT_THROWS(++first, UsageError, "another pass");
  loader.set_epoch(3);
  EXPECT_THROWS(++second, UsageError, "another position");
}

TEST_P(Workers, AMovedLoaderKeepsItsPass) {
  DataLoader loader(probe(100), {.num_workers = GetParam()});
  auto iterator = loader.begin();
  DataLoader moved = std::move(loader);
  ++iterator;
  EXPECT_EQ(moved.position(), 2);
  moved = DataLoader(probe(5), {});
  EXPECT_THROWS(++iterator, UsageError, "destroyed");
}

TEST(DataLoader, ReadsNoFurtherAheadThanAsked) {
  const auto dataset = probe(1000);
  DataLoader loader(dataset, {.batch_size = 2, .num_workers = 2, .prefetch_factor = 3});
  read_some(loader, 1);
  // One batch handed out, six in flight, and one more for the place that the first one left.
  EXPECT_LE(dataset->reads, (1 + 6) * 2);
}

TEST(DataLoader, WorkersRunKernelsOnOneCoreAndLeaveOthersAlone) {
  const int before = at::get_num_threads();
  std::mutex mutex;
  std::set<int> threads;
  const auto ask = [&](std::vector<Example> examples) {
    at::parallel_for(0, 1, 1, [](std::int64_t, std::int64_t) {});
    const std::lock_guard lock(mutex);
    threads.insert(at::get_num_threads());
    return default_collate(std::move(examples));
  };
  DataLoader loader(probe(20), {.batch_size = 2, .num_workers = 2, .collate = ask});
  read_pass(loader);
  EXPECT_EQ(threads, std::set<int>{1});
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(DataLoader, ShardsAsPyTorchsSamplerDoes) {
  const DataLoader whole(probe(50), {.batch_size = 4, .shuffle = true, .seed = 8});
  for (int rank = 0; rank < 3; ++rank) {
    DataLoader part = whole.shard(3, rank);
    EXPECT_EQ(part.size(), 5);
    EXPECT_EQ(read_pass(part),
              DistributedSampler(50, {.num_replicas = 3, .rank = rank, .seed = 8}).indices());
  }
}

TEST(DataLoader, ShardsKeepEpochAndPosition) {
  DataLoader whole(probe(48), {.batch_size = 4, .shuffle = true});
  whole.set_epoch(2);
  read_some(whole, 4);
  DataLoader part = whole.shard(2, 1);
  EXPECT_EQ(part.epoch(), 2);
  EXPECT_EQ(part.position(), 2);
  EXPECT_EQ(whole.position(), 4);
  EXPECT_THROWS(whole.shard(3, 0), UsageError, "16 samples", "4 x 3");
}

TEST(DataLoader, RefusesToShardTwiceOrOverAnOrderOfItsOwn) {
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 0).shard(2, 0), UsageError, "already");
  EXPECT_THROWS(DataLoader(probe(5)).shard(2, 2), UsageError, "rank");
  const auto order = std::make_shared<DistributedSampler>(5);
  EXPECT_THROWS(DataLoader(probe(5), {.sampler = order}).shard(2, 0), UsageError, "sampler of its own");
}

TEST(DataLoader, UsesASamplerOfOnesOwn) {
  const auto order = std::make_shared<DistributedSampler>(
      9, DistributedSamplerOptions{.num_replicas = 2, .rank = 1, .seed = 4});
  DataLoader loader(probe(9), {.batch_size = 2, .sampler = order});
  EXPECT_EQ(read_pass(loader), order->epoch_indices(0));
  EXPECT_EQ(order->epoch(), 1);
  EXPECT_THROWS(DataLoader(probe(8), {.sampler = order}), UsageError, "9 samples", "8");
}

TEST(DataLoader, AStateMovesToAnotherNumberOfRanks) {
  DataLoader two = DataLoader(probe(64), {.batch_size = 4, .shuffle = true}).shard(2, 0);
  read_some(two, 2);
  DataLoader four = DataLoader(probe(64), {.batch_size = 2, .shuffle = true}).shard(4, 3);
  four.load_state(two.state());
  EXPECT_EQ(four.position(), 2);
  DataLoader odd = DataLoader(probe(64), {.batch_size = 5, .shuffle = true}).shard(1, 0);
  EXPECT_THROWS(odd.load_state(two.state()), UsageError, "16 samples", "5 x 1");
  EXPECT_EQ(odd.position(), 0);
}

TEST(DataLoader, RefusesTheStateOfAnotherRun) {
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

TEST(DataLoader, RefusesOptionsOutOfRange) {
  EXPECT_THROWS(DataLoader(probe(1), {.batch_size = 0}), UsageError, "batch_size", "0");
  EXPECT_THROWS(DataLoader(probe(1), {.num_workers = -1}), UsageError, "num_workers", "-1");
  EXPECT_THROWS(DataLoader(probe(1), {.prefetch_factor = 0}), UsageError, "prefetch_factor");
  EXPECT_THROWS(DataLoader(nullptr), UsageError, "no data set");
}

TEST(DataLoader, ItsIteratorIsAnInputIterator) {
  static_assert(std::input_iterator<DataLoader::Iterator>);
  static_assert(std::sentinel_for<std::default_sentinel_t, DataLoader::Iterator>);
  DataLoader loader(probe(3));
  loader.set_epoch(0);
  EXPECT_THROWS(loader.set_epoch(-1), UsageError, "-1");
}

}  // namespace
}  // namespace lockstep
