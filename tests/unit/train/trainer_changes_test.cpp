// A resumed training whose command has changed: another global batch, other hyperparameters, another metric.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/sgd.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::contains_all;
using testing::expect_same;
using testing::Outcome;
using testing::plain_parts;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using testing::train_on;
using testing::train_plainly;

struct Resize {
  int before, after;
  std::int64_t stop_at, ends_at;
};

class ResizedBatch : public ::testing::TestWithParam<Resize> {};
/// 44 samples, 8 a step and rank, 3 epochs. Two ranks that are asked after step 4 stop after step 5, when 12
/// samples of the second epoch are left: 2 and 6 steps of one rank. After step 7 of one rank 36 are left: 3
/// and 3 steps of two ranks.
INSTANTIATE_TEST_SUITE_P(Ranks, ResizedBatch, ::testing::Values(Resize{2, 1, 4, 13}, Resize{1, 2, 7, 13}));

/// Evaluates and saves at the end only.
TrainingArguments at_the_end(const TemporaryFolder& folder) {
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = 100, args.save_steps = 100, args.logging_steps = 1;
  return args;
}

TEST_P(ResizedBatch, FinishesItsEpochs) {
  const TemporaryFolder folder;
  const TrainingArguments args = at_the_end(folder);
  const auto [before, after, stop_at, ends_at] = GetParam();
  EXPECT_TRUE(train_plainly(before, args, stop_at).output.preempted);
  ::testing::internal::CaptureStderr();
  // Interrupted once more, so that the new length is kept.
  EXPECT_TRUE(train_plainly(after, args, ends_at - 2).output.preempted);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      contains_all(said, {"a different global batch size", "a step has " + std::to_string(8 * after),
                          "had " + std::to_string(8 * before), "ends at step " + std::to_string(ends_at)}))
      << said;
  const Outcome outcome = train_plainly(after, args);
  EXPECT_EQ(outcome.output.global_step, ends_at);
  EXPECT_EQ(outcome.state.epoch, 3);
  EXPECT_EQ(outcome.logged("eval_loss").size(), 1U);
  // The schedule ends with the training.
  EXPECT_NEAR(outcome.logged("learning_rate").back(), 0.05 / static_cast<double>(ends_at), 1e-12);
  const auto last = folder / ("out/checkpoint-" + std::to_string(ends_at));
  EXPECT_TRUE(std::filesystem::exists(last));
  const auto written = std::filesystem::last_write_time(last);
  EXPECT_EQ(train_plainly(after, args).output.global_step, ends_at) << "nothing is left to do";
  EXPECT_EQ(std::filesystem::last_write_time(last), written);
}

TrainingArguments saved_arguments(const std::filesystem::path& checkpoint) {
  std::ifstream file(checkpoint / "training_args.json");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return training_argument_table().from_json_text(text);
}

TEST(ChangedArguments, OfTheOptimizerAreListedAndTheCheckpointsStay) {
  const TemporaryFolder folder;
  TrainingArguments args = at_the_end(folder);
  args.weight_decay = 0.1;
  args.output_dir = folder / "whole";
  const Outcome whole = train_plainly(1, args);
  args.output_dir = folder / "out";
  EXPECT_TRUE(train_plainly(1, args, 5).output.preempted);
  args.learning_rate = 0.01, args.weight_decay = 0.3, args.adam_beta2 = 0.9;
  ::testing::internal::CaptureStdout();
  const Outcome outcome = train_plainly(1, args);
  const std::string said = ::testing::internal::GetCapturedStdout();
  expect_same(outcome, whole);
  EXPECT_TRUE(contains_all(said, {"the checkpoint overrides these arguments", "override_on_resume",
                                  "argument       given  checkpoint", "learning_rate  0.01   0.05",
                                  "weight_decay   0.3    0.1", "adam_beta2     0.9    0.999"}))
      << said;
  const TrainingArguments saved = saved_arguments(folder / "out/checkpoint-18");
  EXPECT_EQ(saved.learning_rate, 0.05);
  EXPECT_EQ(saved.weight_decay, 0.1);
  EXPECT_EQ(saved.adam_beta2, 0.999);
}

TEST(ChangedArguments, OfTheOptimizerReplaceTheCheckpointsOnDemand) {
  const TemporaryFolder folder;
  TrainingArguments args = at_the_end(folder);
  args.weight_decay = 0.1;
  EXPECT_TRUE(train_plainly(1, args, 5).output.preempted);
  args.learning_rate = 0.01, args.weight_decay = 0.3;
  args.override_on_resume = true;
  const Outcome outcome = train_plainly(1, args);
  const auto rates = outcome.logged("learning_rate");
  ASSERT_EQ(rates.size(), 18U);
  EXPECT_NEAR(rates[4], 0.05 * 14 / 18, 1e-12);
  EXPECT_NEAR(rates[5], 0.01 * 13 / 18, 1e-12);
  EXPECT_NEAR(rates[17], 0.01 * 1 / 18, 1e-12);
  const TrainingArguments saved = saved_arguments(folder / "out/checkpoint-18");
  EXPECT_EQ(saved.learning_rate, 0.01);
  EXPECT_EQ(saved.weight_decay, 0.3);
}

TEST(ChangedArguments, ThatAreTheSameAreNotListed) {
  const TemporaryFolder folder;
  const TrainingArguments args = at_the_end(folder);
  EXPECT_TRUE(train_plainly(1, args, 5).output.preempted);
  ::testing::internal::CaptureStdout();
  train_plainly(1, args);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(said.find("overrides"), std::string::npos) << said;
}

/// The loss is below 1, and the score is above it: as a loss it would never be better.
TEST(ChangedArguments, WithAnotherMetricTheSearchForTheBestStartsOver) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "loss";
  const auto train = [&](std::int64_t stop_at) {
    return train_on(1, args, [&](const Accelerator&) {
      TrainerComponents parts = plain_parts();
      parts.compute_metrics = [](const EvaluationPrediction&) -> Metrics { return {{"score", 7}}; };
      if (stop_at > 0) parts.callbacks.push_back(std::make_shared<testing::StopAt>(stop_at));
      return parts;
    });
  };
  EXPECT_TRUE(train(8).output.preempted);
  args.metric_for_best_model = "score", args.greater_is_better = false;
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train(0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      contains_all(said, {"eval_score (the less the better) now", "eval_loss", "the search restarts"}))
      << said;
  EXPECT_EQ(outcome.state.best_metric, 7);
  EXPECT_EQ(outcome.state.best_global_step, 12);
}

/// A validation set grows between two runs. In the middle of an epoch other data are refused.
TEST(ChangedData, IsTakenBetweenTwoEpochs) {
  const TemporaryFolder folder;
  const auto loader_of = [](Accelerator& accelerator, std::int64_t samples) {
    return accelerator.prepare(DataLoader(std::make_shared<TensorDataset>(Batch{{"x", at::arange(samples)}}),
                                          DataLoaderOptions{.batch_size = 2}));
  };
  const auto count = [](DataLoader& loader) {
    std::int64_t samples = 0;
    for (const auto& batch : loader) samples += batch.size();
    return samples;
  };
  testing::run_accelerators(2, [&](Accelerator& accelerator) {
    DataLoader loader = loader_of(accelerator, 8);
    EXPECT_EQ(count(loader), 4);
    accelerator.save_state(folder / "between");
    static_cast<void>(*loader.begin());
    accelerator.save_state(folder / "within");
  });
  ::testing::internal::CaptureStderr();
  testing::run_accelerators(2, [&](Accelerator& accelerator) {
    DataLoader loader = loader_of(accelerator, 16);
    accelerator.load_state(folder / "between");
    EXPECT_EQ(loader.epoch(), 1);
    EXPECT_EQ(count(loader), 8);
    EXPECT_THROWS(accelerator.load_state(folder / "within"), UsageError, "data set");
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains_all(said, {"loader #1 reads another data set", "between two epochs"})) << said;
}

/// As reduce_lr_on_plateau of the arguments, whose metric is the loss by default.
TEST(GivenScheduler, OfAPlateauIsSteppedByTheLoss) {
  const TemporaryFolder folder;
  TrainingArguments args = at_the_end(folder);
  args.eval_steps = 1;
  const auto train = [&] {
    return train_on(1, args, [&](const Accelerator&) {
      TrainerComponents parts = plain_parts();
      const auto sgd = std::make_shared<optim::SGD>(
          [&] {
            std::vector<at::Tensor> parameters;
            for (const auto& entry : parts.model->parameters()) parameters.push_back(entry.tensor);
            return parameters;
          }(),
          optim::SgdOptions{.lr = 0.4});
      // Nothing counts as better: the rate falls with every evaluation.
      parts.optimizers = {sgd,
                          std::make_shared<optim::ReduceLrOnPlateau>(
                              *sgd, optim::PlateauOptions{.factor = 0.5, .patience = 0, .threshold = 1e9})};
      return parts;
    });
  };
  const auto rates = train().logged("learning_rate");
  ASSERT_EQ(rates.size(), 18U);
  EXPECT_EQ(rates[0], 0.4);
  EXPECT_EQ(rates[1], 0.2);
  EXPECT_EQ(rates[2], 0.1);
  args.output_dir = folder / "none";
  args.eval_strategy = IntervalStrategy::no;
  EXPECT_THROWS(train(), UsageError, "ReduceLrOnPlateau", "eval_strategy");
}

}  // namespace
}  // namespace lockstep
