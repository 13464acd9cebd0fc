#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"
#include "train/state/loader_position.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

/// Threads as ranks, all on one node.
void run_with(int size, const DataLoaderConfiguration& config,
              const std::function<void(Accelerator&)>& body) {
  testing::run_group(size, [&](const ProcessGroup& group) {
    World world;
    world.rank = world.local_rank = group.rank();
    world.world_size = world.local_world_size = group.size();
    Accelerator accelerator(world, group, {.dataloader_config = config});
    body(accelerator);
  });
}

void run(int size, const std::function<void(Accelerator&)>& body) { run_with(size, {}, body); }

Indices first_numbers(std::int64_t count) {
  Indices all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Indices values(const at::Tensor& tensor) {
  const auto* first = tensor.const_data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

std::shared_ptr<const Dataset> counted(std::int64_t count) {
  return std::make_shared<TensorDataset>(Batch{{"x", at::arange(count)}});
}

class AnyWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Data, AnyWorld, ::testing::Values(1, 2, 3, 4));

std::vector<DataLoaderConfiguration> all_configurations() {
  std::vector<DataLoaderConfiguration> all;
  for (const bool split : {false, true}) {
    for (const bool even : {false, true}) {
      for (const auto sharding : {Sharding::by_sample, Sharding::by_batch}) {
        all.push_back({.split_batches = split, .even_batches = even, .sharding = sharding});
      }
    }
  }
  return all;
}

/// The numbers that a metric sees in the rest of the epoch. A rank without a batch passes an empty one.
Indices metric_of(const Accelerator& accelerator, DataLoader& batches) {
  Indices seen;
  const Batch none{{"x", at::zeros({0}, at::kLong)}};
  auto iterator = batches.begin();
  std::int64_t more = 1;
  while (true) {
    const bool mine = iterator != batches.end();
    more = accelerator.reduce(at::scalar_tensor(mine ? 1 : 0, at::kLong)).item<std::int64_t>();
    if (more == 0) return seen;
    const Batch& batch = mine ? *iterator : none;
    const auto gathered = values(accelerator.gather_for_metrics(batch["x"], batch));
    seen.insert(seen.end(), gathered.begin(), gathered.end());
    if (mine) ++iterator;
  }
}

TEST_P(AnyWorld, MetricsSeeEachSampleOnceInEveryMode) {
  for (const auto& config : all_configurations()) {
    run_with(GetParam(), config, [&](Accelerator& accelerator) {
      for (const std::int64_t length : {1, 5, 12, 22, 30}) {
        for (const bool shuffle : {false, true}) {
          DataLoader batches = accelerator.prepare(
              DataLoader(counted(length), {.batch_size = config.split_batches ? 12 : 4, .shuffle = shuffle}));
          auto seen = metric_of(accelerator, batches);
          const bool in_order = !shuffle && config.sharding == Sharding::by_batch;
          if (!in_order) std::sort(seen.begin(), seen.end());
          ASSERT_EQ(seen, first_numbers(length));
          EXPECT_EQ(batches.epoch(), 1);
        }
      }
    });
  }
}

TEST_P(AnyWorld, MetricsAreExactAfterSkippingToo) {
  run_with(GetParam(), {.sharding = Sharding::by_batch}, [&](Accelerator& accelerator) {
    DataLoader batches = accelerator.prepare(DataLoader(counted(31), {.batch_size = 2}));
    accelerator.skip_first_batches(batches, 2);
    const Indices all = first_numbers(31);
    EXPECT_EQ(metric_of(accelerator, batches), Indices(all.begin() + 4 * GetParam(), all.end()));
    EXPECT_EQ(metric_of(accelerator, batches), all);
  });
}

TEST_P(AnyWorld, MetricsTakeSeveralOutputsASampleAndCollections) {
  run_with(GetParam(), {.sharding = Sharding::by_batch}, [&](Accelerator& accelerator) {
    DataLoader batches = accelerator.prepare(DataLoader(counted(5), {.batch_size = 2}));
    Indices pairs, indices, named, listed;
    for (auto& batch : batches) {
      const at::Tensor x = batch["x"];
      const at::Tensor twice = at::stack({2 * x, 2 * x + 1}, 1).flatten();
      using Named = std::map<std::string, at::Tensor>;
      const auto [two, map, vector] = accelerator.gather_for_metrics(
          std::tuple{twice, Named{{"x", x}}, std::vector<at::Tensor>{x}}, batch);
      const Batch whole = accelerator.gather_for_metrics(batch);
      EXPECT_EQ(whole.indices, values(whole["x"]));
      EXPECT_EQ(whole.valid, std::vector<bool>(whole.indices.size(), true));
      for (const auto& [all, tensor] : {std::pair{&pairs, two}, std::pair{&indices, whole["x"]},
                                        std::pair{&named, map.at("x")}, std::pair{&listed, vector[0]}}) {
        const auto part = values(tensor);
        all->insert(all->end(), part.begin(), part.end());
      }
    }
    EXPECT_EQ(pairs, first_numbers(10));
    EXPECT_EQ(indices, first_numbers(5));
    EXPECT_EQ(named, first_numbers(5));
    EXPECT_EQ(listed, first_numbers(5));
  });
}

TEST(DataRules, MetricsRefuseRowsThatBelongToNoSample) {
  run(1, [](const Accelerator& accelerator) {
    const Batch batch{{"x", at::zeros({4})}};
    EXPECT_THROWS(accelerator.gather_for_metrics(at::zeros({6}), batch), UsageError, "4 samples", "6 rows");
    EXPECT_THROWS(accelerator.gather_for_metrics(at::scalar_tensor(1), batch), UsageError, "scalar");
  });
}

/// Accelerate's cases for two processes: the batch sizes of both.
std::vector<std::vector<std::int64_t>> sizes(std::int64_t length, std::int64_t batch_size, bool even) {
  std::vector<std::vector<std::int64_t>> all(2);
  run_with(2, {.even_batches = even, .sharding = Sharding::by_batch}, [&](Accelerator& accelerator) {
    auto& mine = all[static_cast<std::size_t>(accelerator.process_index())];
    DataLoader batches = accelerator.prepare(DataLoader(counted(length), {.batch_size = batch_size}));
    for (auto& batch : batches) mine.push_back(batch.size());
  });
  return all;
}

TEST(DataRules, GivesAcceleratesBatchSizesEvenAndUneven) {
  using Sizes = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(sizes(3, 1, true), (Sizes{{1, 1}, {1, 1}}));
  EXPECT_EQ(sizes(7, 2, true), (Sizes{{2, 2}, {2, 2}}));
  EXPECT_EQ(sizes(3, 1, false), (Sizes{{1, 1}, {1}}));
  EXPECT_EQ(sizes(7, 2, false), (Sizes{{2, 2}, {2, 1}}));
}

TEST(DataRules, CollectionsAreMeasuredSlicedAndJoined) {
  using Nested = std::pair<at::Tensor, std::vector<at::Tensor>>;
  const Nested some{at::arange(6).reshape({3, 2}), {at::arange(3), at::arange(3) + 10}};
  EXPECT_EQ(find_batch_size(some), 3);
  EXPECT_EQ(find_batch_size(std::pair(at::scalar_tensor(1), at::arange(4))), 4);
  EXPECT_THROWS(find_batch_size(at::scalar_tensor(1)), UsageError, "none of the 1 tensors");
  const Nested tail = slice_tensors(some, -2, 100);
  EXPECT_EQ(values(tail.second[1]), (Indices{11, 12}));
  const Nested joined = concatenate(std::vector{some, tail});
  EXPECT_EQ(joined.first.sizes(), (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(values(joined.second[0]), (Indices{0, 1, 2, 1, 2}));
  EXPECT_THROWS(concatenate(std::vector<Batch>{}), UsageError, "nothing to join");
  EXPECT_THROWS(concatenate(std::vector<std::vector<at::Tensor>>{{at::arange(1)}, {}}), UsageError,
                "1 tensors and another 0");
}

TEST_P(AnyWorld, TheSeedOfTheConfigurationIsTheOrders) {
  const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
    Indices all;
    run_with(GetParam(), {.sharding = Sharding::by_batch, .data_seed = seed}, [&](Accelerator& accelerator) {
      DataLoader batches = accelerator.prepare(DataLoader(counted(24), {.shuffle = true, .seed = 5}));
      batches.set_epoch(epoch);
      const auto seen = metric_of(accelerator, batches);
      if (accelerator.is_main_process()) all = seen;
    });
    return all;
  };
  EXPECT_EQ(order(42, 3), RandomSampler(24, {.seed = 42}).epoch_indices(3));
  EXPECT_NE(order(43, 3), order(42, 3));
}

TEST_P(AnyWorld, SplitsListsMapsTensorsAndTuples) {
  run(GetParam(), [&](const Accelerator& accelerator) {
    const auto world = static_cast<std::int64_t>(GetParam());
    for (std::int64_t length = 0; length <= 17; ++length) {
      const auto part = accelerator.split_between_processes(first_numbers(length));
      const auto extra = accelerator.process_index() < length % world ? 1 : 0;
      ASSERT_EQ(static_cast<std::int64_t>(part.size()), length / world + extra);
      EXPECT_EQ(values(accelerator.gather(at::tensor(at::ArrayRef<std::int64_t>(part), at::kLong))),
                first_numbers(length));
      const auto padded = accelerator.split_between_processes(first_numbers(length), true);
      ASSERT_EQ(static_cast<std::int64_t>(padded.size()), (length + world - 1) / world);
      const at::Tensor rows = at::arange(length);
      EXPECT_EQ(values(accelerator.split_between_processes(rows)), part);
      EXPECT_EQ(values(accelerator.split_between_processes(rows, true)), padded);
      const auto [left, right] =
          accelerator.split_between_processes(std::tuple{first_numbers(length), rows}, true);
      EXPECT_EQ(left, padded);
      EXPECT_EQ(values(right), padded);
      const std::map<std::string, Indices> map{{"ints", first_numbers(length)}};
      EXPECT_EQ(accelerator.split_between_processes(map).at("ints"), part);
      EXPECT_EQ(map.at("ints").size(), static_cast<std::size_t>(length));
    }
  });
}

TEST(DataRules, APositionIsReadableAndOlderFilesAreRead) {
  const DataLoaderState state{
      .seed = 7, .epoch = 2, .samples = 40, .dataset = "100 samples", .order = "random"};
  const auto document = train::to_json(state);
  EXPECT_EQ(
      document,
      (nlohmann::json{
          {"seed", 7}, {"epoch", 2}, {"samples", 40}, {"dataset", "100 samples"}, {"order", "random"}}));
  const auto again = train::loader_state_from(document);
  EXPECT_EQ(again.samples, 40);
  EXPECT_EQ(again.order, "random");
  nlohmann::json older{{"seed", 7},     {"epoch", 2},      {"position", 5},
                       {"length", 100}, {"batch_size", 4}, {"num_replicas", 2}};
  DataLoader loader(counted(100), {.shuffle = true, .seed = 7});
  loader.load_state(train::loader_state_from(older));
  EXPECT_EQ(loader.state().samples, 40);
  EXPECT_EQ(loader.epoch(), 2);
  older["position"] = 13;  // The last batch had repeated samples.
  EXPECT_EQ(train::loader_state_from(older).samples, 100);
  older["position"] = -1;
  EXPECT_THROWS(loader.load_state(train::loader_state_from(older)), UsageError, "sample -8");
}

TEST(DataRules, PaddingRepeatsTheLastOfAll) {
  run(3, [](const Accelerator& accelerator) {
    const auto rank = accelerator.process_index();
    const std::vector<std::string> words{"a", "b", "c", "d"};
    const std::vector<std::vector<std::string>> expected{{"a", "b"}, {"c", "d"}, {"d", "d"}};
    EXPECT_EQ(accelerator.split_between_processes(words, true), expected[static_cast<std::size_t>(rank)]);
    EXPECT_TRUE(accelerator.split_between_processes(std::vector<int>{}, true).empty());
    const Batch part = accelerator.split_between_processes(Batch{{"x", at::arange(4)}}, true);
    EXPECT_EQ(part.valid, (std::vector<bool>{true, rank == 0}));
    EXPECT_EQ(values(part["x"])[1], rank == 0 ? 1 : 3);
    const std::tuple uneven{first_numbers(3), first_numbers(4)};
    EXPECT_THROWS(accelerator.split_between_processes(uneven), UsageError, "3, 4");
    EXPECT_THROWS(accelerator.split_between_processes(at::scalar_tensor(1)), UsageError, "scalar");
  });
}

TEST_P(AnyWorld, PadsToTheLargest) {
  run(GetParam(), [&](const Accelerator& accelerator) {
    const std::int64_t rank = accelerator.process_index();
    const std::int64_t most = GetParam() + 1;
    const at::Tensor mine = at::full({2, rank + 2}, rank + 1);
    const at::Tensor behind = accelerator.pad_across_processes(mine, 1, -1);
    EXPECT_EQ(behind.sizes(), (Indices{2, most}));
    EXPECT_TRUE(at::equal(behind.narrow(1, 0, rank + 2), mine));
    EXPECT_TRUE(behind.narrow(1, rank + 2, most - rank - 2).eq(-1).all().item<bool>());
    const at::Tensor before = accelerator.pad_across_processes(mine, -1, 0, true);
    EXPECT_TRUE(at::equal(before.narrow(1, most - rank - 2, rank + 2), mine));
    EXPECT_TRUE(at::equal(accelerator.pad_across_processes(mine, 2), mine));
    const auto [first, second] = accelerator.pad_across_processes(std::pair{mine, mine}, 1);
    EXPECT_EQ(first.sizes(), second.sizes());
  });
}

/// On all ranks, also on the one whose tensor is the longest.
TEST(DataRules, PaddingRefusesAValueThatTheTypeLacks) {
  run(2, [](const Accelerator& accelerator) {
    const auto mine = [&](at::ScalarType type) { return at::ones({accelerator.process_index() + 1}, type); };
    EXPECT_THROWS(accelerator.pad_across_processes(mine(at::kBool), 0, -100), UsageError, "Bool", "-100");
    EXPECT_THROWS(accelerator.pad_across_processes(mine(at::kByte), 0, -100), UsageError, "Byte");
    EXPECT_THROWS(accelerator.pad_across_processes(mine(at::kLong), 0, 0.5), UsageError, "0.5");
    EXPECT_EQ(accelerator.pad_across_processes(mine(at::kBool), 0, 0).size(0), 2);
    EXPECT_EQ(accelerator.pad_across_processes(mine(at::kChar), 0, -100).size(0), 2);
    EXPECT_EQ(accelerator.pad_across_processes(at::ones({1}, at::kByte), 0, -100).size(0), 1);
  });
}

TEST(DataRules, PaddingRefusesATensorThatLacksTheDimensionOnOneRank) {
  run(2, [](const Accelerator& accelerator) {
    const at::Tensor mine = at::zeros(accelerator.is_main_process() ? Indices{2} : Indices{2, 3});
    EXPECT_THROWS(accelerator.pad_across_processes(mine, 1), CommunicationError, "rank 0 has Float [2]",
                  "rank 1 has Float [2,3]");
  });
}

TEST_P(AnyWorld, GathersObjectsAndBroadcastsStructures) {
  run(GetParam(), [&](const Accelerator& accelerator) {
    const auto rank = accelerator.process_index();
    std::vector<std::string> expected;
    for (int r = 0; r < GetParam(); ++r)
      expected.insert(expected.end(), static_cast<std::size_t>(r), std::to_string(r));
    const std::vector<std::string> mine(static_cast<std::size_t>(rank), std::to_string(rank));
    EXPECT_EQ(accelerator.gather_object(mine), expected);
    const auto objects = accelerator.gather_object(std::vector<nlohmann::json>{{{"rank", rank}}});
    ASSERT_EQ(objects.size(), static_cast<std::size_t>(GetParam()));
    EXPECT_EQ(objects.back().at("rank"), GetParam() - 1);
    const int last = GetParam() - 1;
    const auto all =
        accelerator.broadcast(std::vector<at::Tensor>{at::full({2}, rank), at::full({1}, -rank)}, last);
    EXPECT_TRUE(at::equal(all[0], at::full({2}, last)));
    EXPECT_TRUE(at::equal(all[1], at::full({1}, -last)));
  });
}

/// Texts of any bytes, in the order of the rows.
TEST_P(AnyWorld, GathersAndSplitsTheTextsOfBatches) {
  run(GetParam(), [&](const Accelerator& accelerator) {
    const auto rank = accelerator.process_index();
    Batch mine{{"x", at::full({3}, rank)}};
    mine.set_texts("name", {std::to_string(rank), "\xff", ""});
    mine.indices = {3 * rank, 3 * rank + 1, 3 * rank + 2};
    mine.valid = {true, true, false};
    const Batch all = accelerator.gather(mine), counted = accelerator.gather_for_metrics(mine);
    std::vector<std::string> names, wanted;
    for (int r = 0; r < GetParam(); ++r) {
      names.insert(names.end(), {std::to_string(r), "\xff", ""});
      wanted.insert(wanted.end(), {std::to_string(r), "\xff"});
    }
    EXPECT_EQ(all.texts("name"), names);
    EXPECT_EQ(counted.texts("name"), wanted);
    EXPECT_EQ(counted.size(), 2 * GetParam());
    const Batch share = accelerator.split_between_processes(all);
    EXPECT_EQ(share.texts("name"), mine.texts("name"));
    EXPECT_EQ(share.indices, mine.indices);
    Batch uneven = mine;
    uneven.set_texts("name", {"a"});
    EXPECT_THROW(accelerator.split_between_processes(uneven), UsageError);
  });
}

}  // namespace
}  // namespace lockstep
