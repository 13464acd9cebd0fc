// Training on streams: through the Accelerator and in the Trainer.

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/iterable_tensors.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::run_accelerators;
using testing::small_model;
using testing::TemporaryFolder;
using Rows = std::vector<std::int64_t>;

/// Samples of small_model() in shards of these lengths, shuffled.
std::shared_ptr<const StreamDataset> stream_of(const Rows& lengths) {
  const auto data = IterableDataset::from_generator(std::ssize(lengths), [lengths](std::int64_t shard) {
    const auto begin = std::accumulate(lengths.begin(), lengths.begin() + shard, std::int64_t{0});
    return
        [next = begin,
         end = begin + lengths[static_cast<std::size_t>(shard)]]() mutable -> std::optional<Value::Fields> {
          if (next == end) return std::nullopt;
          const auto x = static_cast<double>(next) / 20 - 1;
          Value::List features{x, x / 2, -x};
          return Value::Fields{
              {"id", Value(next++)}, {"x", Value(std::move(features))}, {"y", Value(Value::List{x * x})}};
        };
  });
  return std::make_shared<IterableTensorDataset>(data.shuffle(7, 5));
}

const Rows kUneven{9, 17, 4, 12};
constexpr std::int64_t kRows = 42;

Outcome train(int ranks, const TrainingArguments& args, std::int64_t stop_at, bool dispatch = false) {
  auto options = accelerator_options(args);
  options.dataloader_config.dispatch_batches = dispatch;
  Outcome outcome;
  run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        TrainerComponents parts{.model = small_model(), .train_stream = stream_of(kUneven)};
        if (stop_at > 0) parts.callbacks.push_back(std::make_shared<testing::StopAt>(stop_at));
        Trainer trainer(accelerator, args, parts);
        const TrainOutput output = trainer.train();
        if (accelerator.is_main_process()) outcome = testing::outcome_of(trainer, output);
      },
      options);
  return outcome;
}

TrainingArguments stream_arguments(const TemporaryFolder& folder, const char* name) {
  TrainingArguments args = arguments(folder);
  args.output_dir = folder / name;
  args.max_steps = 9;
  args.dataloader_num_workers = 2;
  return args;
}

TEST(StreamTraining, ResumesInTheMiddleOfAnEpochBitForBit) {
  for (const auto& [ranks, dispatch] : {std::pair{1, false}, std::pair{2, false}, std::pair{2, true}}) {
    const TemporaryFolder folder;
    const auto whole = stream_arguments(folder, "whole");
    const auto parts = stream_arguments(folder, "parts");
    const Outcome wanted = train(ranks, whole, 0, dispatch);
    EXPECT_EQ(wanted.output.global_step, 9);
    EXPECT_GT(wanted.state.epoch, 1) << "several epochs, which end together on all ranks";
    const Outcome stopped = train(ranks, parts, 5, dispatch);
    EXPECT_TRUE(stopped.output.preempted);
    expect_same(wanted, train(ranks, parts, 0, dispatch));
  }
}

/// As transformers logs it where the length is not known.
TEST(StreamTraining, AnEpochIsTheWholeTraining) {
  const TemporaryFolder folder;
  auto args = stream_arguments(folder, "whole");
  args.max_steps = 3;
  EXPECT_EQ(train(1, args, 0).logged("epoch"), (std::vector<double>{4.0 / 6, 1.0}));
}

TEST(StreamTraining, ResumesOnOtherNumbersOfRanks) {
  const TemporaryFolder folder;
  const auto args = stream_arguments(folder, "parts");
  EXPECT_TRUE(train(2, args, 2).output.preempted);
  auto again = args;
  again.dataloader_drop_last = true;
  EXPECT_THROWS(train(3, again, 0), UsageError, "4 parts", "3 ranks", "divides 4");
  again = args;
  again.max_steps = 4;
  EXPECT_EQ(train(3, again, 0).output.global_step, 4);
  EXPECT_EQ(train(1, args, 0).output.global_step, 9);
}

/// 5 batches in windows of 2, 3 and 4: the last window is shorter.
TEST(StreamTraining, TrainsAsOnADataSetOfTheSameSamples) {
  const auto data = IterableDataset::from_generator(1, [](std::int64_t) {
    return [next = 0]() mutable -> std::optional<Value::Fields> {
      if (next == 19) return std::nullopt;
      const auto x = static_cast<double>(next++) / 10 - 1;
      return Value::Fields{{"x", Value(Value::List{x, x / 2, -x})}, {"y", Value(Value::List{x * x})}};
    };
  });
  const auto stream = std::make_shared<IterableTensorDataset>(data);
  std::vector<Example> rows;
  const auto reader = stream->open({}, 0, {});
  for (auto row = reader->next(); row; row = reader->next()) rows.push_back(*row);
  const auto dataset = std::make_shared<TensorDataset>(default_collate(rows));
  for (const std::int64_t steps : {2, 3, 4}) {
    const TemporaryFolder folder;
    TrainingArguments args = arguments(folder);
    args.gradient_accumulation_steps = steps;
    args.max_steps = 5;
    args.train_sampling_strategy = SamplingStrategy::sequential;
    const auto outcome = [&](const char* name, TrainerComponents parts) {
      args.output_dir = folder / name;
      return testing::train_on(1, args, [&](const Accelerator&) { return parts; });
    };
    expect_same(outcome("rows", {.model = small_model(), .train_dataset = dataset}),
                outcome("stream", {.model = small_model(), .train_stream = stream}));
  }
}

TEST(StreamTraining, NeedsToKnowWhenItEnds) {
  const TemporaryFolder folder;
  TrainingArguments args = stream_arguments(folder, "out");
  args.max_steps = -1;
  EXPECT_THROWS(train(1, args, 0), UsageError, "max_steps must be set", "does not know its length");
  args.max_duration = Duration("3ep");
  EXPECT_THROWS(train(1, args, 0), UsageError, "max_steps must be set");
  args.max_duration = Duration("4");
  EXPECT_EQ(train(1, args, 0).output.global_step, 4);
  const Accelerator accelerator(World::single(), ProcessGroup(0, 1, Store::in_memory()));
  const auto with = [&](TrainerComponents parts) { Trainer(accelerator, args, std::move(parts)).train(); };
  EXPECT_THROWS(with({.model = small_model(), .train_stream = stream_of({0, 0})}), DataError, "no batch");
  EXPECT_THROWS(
      with(
          {.model = small_model(), .train_dataset = testing::samples(4), .train_stream = stream_of(kUneven)}),
      UsageError, "both train_dataset and train_stream");
}

Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

Rows ids(const at::Tensor& tensor) {
  const auto* const first = tensor.const_data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

Rows all_rows() {
  Rows all(kRows);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(StreamTraining, MetricsSeeEachRowOnce) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool dispatch : {false, true}) {
      run_accelerators(ranks,
                       [](Accelerator& accelerator) {
                         DataLoader batches =
                             accelerator.prepare(DataLoader(stream_of(kUneven), {.batch_size = 4}));
                         Rows seen;
                         for (auto& batch : batches) {
                           const auto some = ids(accelerator.gather_for_metrics(batch["id"], batch));
                           seen.insert(seen.end(), some.begin(), some.end());
                         }
                         EXPECT_EQ(sorted(seen), all_rows());
                       },
                       {.dataloader_config = {.dispatch_batches = dispatch}});
    }
  }
}

std::vector<float> sorted_numbers(const at::Tensor& tensor) {
  const at::Tensor flat = std::get<0>(tensor.flatten().sort());
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

/// Ranks end on their own, some several batches earlier than others.
TEST(StreamTraining, EvaluationsCountEachRowOnce) {
  std::vector<Example> rows;
  const auto reader = stream_of(kUneven)->open({}, 0, {});
  for (auto row = reader->next(); row; row = reader->next()) rows.push_back(*row);
  const auto dataset = std::make_shared<TensorDataset>(default_collate(rows));
  const auto mean_of_ids = [](const EvaluationPrediction& all) -> Metrics {
    const at::Tensor seen = all.inputs["id"];
    EXPECT_EQ(sorted(ids(seen)), all_rows());
    EXPECT_EQ(all.predictions["prediction"].size(0), kRows);
    return {{"error", (all.predictions["prediction"] - all.inputs["y"]).abs().mean().item<double>()}};
  };
  for (const int ranks : {1, 2, 3}) {
    run_accelerators(ranks, [&](const Accelerator& accelerator) {
      const TemporaryFolder folder;
      const TrainingArguments args = arguments(folder);
      Trainer with_rows(accelerator, args,
                        {.model = small_model(), .eval_dataset = dataset, .compute_metrics = mean_of_ids});
      Trainer with_stream(
          accelerator, args,
          {.model = small_model(), .eval_stream = stream_of(kUneven), .compute_metrics = mean_of_ids});
      const auto expected = with_rows.evaluate(), metrics = with_stream.evaluate();
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(metrics[i].first, expected[i].first);
        EXPECT_NEAR(metrics[i].second, expected[i].second, 1e-6) << metrics[i].first;
      }
      const auto predicted = with_stream.predict(nullptr).predictions;
      EXPECT_TRUE(predicted.indices.empty());
      EXPECT_EQ(std::ssize(predicted.valid), kRows);
      EXPECT_EQ(sorted_numbers(predicted["prediction"]),
                sorted_numbers(with_rows.predict(nullptr).predictions["prediction"]));
    });
  }
}

TEST(StreamTraining, EvaluatesOnStreamsWhileItTrains) {
  const TemporaryFolder folder;
  TrainingArguments args = stream_arguments(folder, "out");
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 3;
  const auto losses_on = [&](int ranks, std::int64_t limit) {
    args.limit_eval_batches = limit;
    return testing::train_on(ranks, args,
                             [](const Accelerator&) {
                               return TrainerComponents{.model = small_model(),
                                                        .train_stream = stream_of({8, 8}),
                                                        .eval_stream = stream_of(kUneven)};
                             })
        .logged("eval_loss");
  };
  EXPECT_EQ(losses_on(2, 0).size(), 3U);
  EXPECT_NE(losses_on(1, 0), losses_on(1, 2)) << "two batches are not all";
  args.eval_strategy = IntervalStrategy::no;
  const Accelerator accelerator(World::single(), ProcessGroup(0, 1, Store::in_memory()));
  Trainer both(accelerator, args,
               {.model = small_model(), .eval_dataset = testing::samples(4), .eval_stream = stream_of({3})});
  EXPECT_THROWS(both.evaluate(), UsageError, "both eval_dataset and eval_stream");
  Trainer none(accelerator, args, {.model = small_model()});
  EXPECT_THROWS(none.evaluate(), UsageError, "eval_dataset or eval_stream");
}

TEST(StreamTraining, JoinedRanksReadEachTheirOwnRowsAndNoMore) {
  run_accelerators(2, [](Accelerator& accelerator) {
    torch::nn::Linear model(3, 1);
    auto [ddp, batches] = accelerator.prepare(model, DataLoader(stream_of(kUneven), {.batch_size = 4}));
    Rows seen;
    accelerator.join_uneven_inputs(
        ddp,
        [&, &net = ddp, &loader = batches] {
          for (auto& batch : loader) {
            accelerator.backward(net(batch["x"]).sum());
            const auto some = ids(batch["id"]);
            seen.insert(seen.end(), some.begin(), some.end());
          }
        },
        {}, false);
    const auto mine = std::ssize(seen);
    Rows all;
    for (const auto& rank : accelerator.process_group().all_gather_object(nlohmann::json(seen)))
      for (const auto& row : rank) all.push_back(row.get<std::int64_t>());
    EXPECT_EQ(sorted(all), all_rows());
    EXPECT_NE(mine * 2, kRows) << "the ranks had equally much to read";
  });
}

}  // namespace
}  // namespace lockstep
