#include "lockstep/data/data_loader.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>

#include "lockstep/core/error.hpp"
#include "lockstep/data/image_transforms.hpp"
#include "support/gpu.hpp"
#include "support/throws.hpp"
#include "unit/data/probe.hpp"

namespace lockstep {
namespace {

using testing::Indices;
using testing::probe;
using testing::read_pass;
using testing::read_some;
using testing::tensor_indices;

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
  EXPECT_EQ(seen, DistributedSampler(40, {.shuffle = false}).epoch_indices(0));
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
  EXPECT_EQ(state.samples, 20);
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
  EXPECT_EQ(first.state().samples, 10);
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

TEST(DataLoader, LeavingTheLoopEndsTheWorkersAndLetsGoOfTheDataSet) {
  auto dataset = probe(1000);
  auto loader =
      std::make_unique<DataLoader>(dataset, DataLoaderOptions{.num_workers = 3, .prefetch_factor = 50});
  read_some(*loader, 1);
  const int reads = dataset->reads;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset->reads, reads);
  loader.reset();
  EXPECT_EQ(dataset.use_count(), 1);
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

class Lifetime : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(DataLoader, Lifetime, ::testing::Bool());

TEST_P(Lifetime, WorkersLiveFromPassToPassWhereTheyAreToAndAreSetUpOnce) {
  std::mutex mutex;
  std::vector<int> started;
  std::set<std::thread::id> threads;
  DataLoaderOptions options{.num_workers = 2, .persistent_workers = GetParam()};
  options.worker_init = [&](int worker) {
    const std::lock_guard lock(mutex);
    started.push_back(worker);
  };
  options.collate = [&](std::vector<Example> examples) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return default_collate(std::move(examples));
  };
  DataLoader loader(probe(12), options);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(read_pass(loader).size(), 12U);
    read_some(loader, 2);  // A pass that is left early is no reason to start anew.
    loader.rewind();
  }
  std::sort(started.begin(), started.end());
  const std::size_t generations = GetParam() ? 1 : 6;
  ASSERT_EQ(started.size(), 2 * generations);
  EXPECT_EQ(std::count(started.begin(), started.end(), 1), static_cast<std::ptrdiff_t>(generations));
  EXPECT_TRUE(threads.size() <= 2 || !GetParam());
}

TEST(DataLoader, AWorkerThatCannotStartIsReported) {
  DataLoader loader(probe(8),
                    {.num_workers = 2, .worker_init = [](int) { throw std::runtime_error("no licence"); }});
  EXPECT_THROWS(read_pass(loader), DataError, "worker_init", "no licence");
  EXPECT_EQ(loader.position(), 0);
}

TEST(DataLoader, OptionsForDevicesDoNothingOnTheCpu) {
  DataLoader loader(probe(8), {.batch_size = 3, .num_workers = 1, .non_blocking = true});
  for (auto& batch : loader) EXPECT_TRUE(batch["index"].is_cpu());
}

TEST(DataLoader, CopiesToACudaDeviceConcurrentlyWithTheHost) {
  LOCKSTEP_NEEDS_GPU();
  const at::Device cuda(at::kCUDA, 0);
  const at::Tensor x = at::arange(1 << 22).view({64, -1});
  const auto rows = std::make_shared<TensorDataset>(Batch{{"x", x}});
  for (const int workers : {0, 3}) {
    for (const bool beside : {false, true}) {
      DataLoader loader(rows,
                        {.batch_size = 5, .num_workers = workers, .device = cuda, .non_blocking = beside});
      at::Tensor sum = at::zeros({}, x.options().device(cuda));
      for (auto& batch : loader) {
        EXPECT_EQ(batch["x"].device(), cuda);
        sum += batch["x"].sum();  // Memory that is used again too early would show.
      }
      EXPECT_EQ(sum.item<std::int64_t>(), x.sum().item<std::int64_t>());
    }
  }
  DataLoader pinned(rows, {.batch_size = 5, .num_workers = 1, .pin_memory = true});
  for (auto& batch : pinned) EXPECT_TRUE(batch["x"].is_pinned());
}

/// Four samples; the third was replaced, and says so.
class WithAReplacedSample final : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  Example get(std::int64_t index, const SampleContext&) const override {
    Example example{{"x", at::scalar_tensor(index, at::kLong)}};
    example.valid = {index != 2};
    return example;
  }
};

TEST(DataLoader, RowsThatADataSetMarksStayMarked) {
  const auto data = std::make_shared<WithAReplacedSample>();
  const auto by_hand = [](std::vector<Example> examples) {
    return Batch{{"x", at::zeros({static_cast<std::int64_t>(examples.size())})}};
  };
  const auto transformed =
      std::make_shared<TransformedDataset>(data, [](Batch batch, std::span<const SampleContext>) {
        return Batch{{"x", batch["x"] + 1}};
      });
  const auto expect_marked = [](DataLoader loader, const char* how) {
    for (const auto& batch : loader)
      EXPECT_EQ(batch.valid, (std::vector<bool>{true, true, false, true})) << how;
  };
  expect_marked(DataLoader(data, {.batch_size = 4}), "get_batch");
  expect_marked(DataLoader(data, {.batch_size = 4, .collate = default_collate}), "default_collate");
  expect_marked(DataLoader(data, {.batch_size = 4, .collate = by_hand}), "a function of one's own");
  expect_marked(DataLoader(transformed, {.batch_size = 4}), "transformed");
  expect_marked(DataLoader(transformed, {.batch_size = 4, .collate = default_collate}), "both");
}

TEST(DataLoader, RefusesOptionsOutOfRange) {
  EXPECT_THROWS(DataLoader(probe(1), {.batch_size = 0}), UsageError, "batch_size", "0");
  EXPECT_THROWS(DataLoader(probe(1), {.num_workers = -1}), UsageError, "num_workers", "-1");
  EXPECT_THROWS(DataLoader(probe(1), {.prefetch_factor = 0}), UsageError, "prefetch_factor");
  EXPECT_THROWS(DataLoader(std::shared_ptr<const Dataset>()), UsageError, "no data set");
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
