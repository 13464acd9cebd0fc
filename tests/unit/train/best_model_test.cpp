// The best evaluation of a training: which one it is, and where its model is found.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using testing::train_on;

/// Returns one value after the other; from the last one on, the last.
class Scripted final : public EvaluationMetrics {
 public:
  explicit Scripted(std::vector<double> values) : values_(std::move(values)) {}
  void reset() override {}
  void update(const Batch& /*outputs*/, const Batch& /*batch*/) override {}
  LogValues compute(const ProcessGroup& /*group*/) override {
    const double value = values_[std::min(next_++, values_.size() - 1)];
    return {{"score", value}};
  }

 private:
  std::vector<double> values_;
  std::size_t next_ = 0;
};

/// EarlyStoppingCallback's count after each evaluation.
class CountsPatience final : public TrainerCallback {
 public:
  explicit CountsPatience(std::shared_ptr<EarlyStoppingCallback> stopping) : stopping_(std::move(stopping)) {}
  void on_evaluate(CallbackContext& /*event*/) override {
    const auto state = nlohmann::json::parse(stopping_->state_dict());
    counts.push_back(state["attributes"]["early_stopping_patience_counter"]);
  }
  std::vector<int> counts;

 private:
  std::shared_ptr<EarlyStoppingCallback> stopping_;
};

/// The expected values are those of transformers' Trainer and EarlyStoppingCallback.
TEST(BestModel, IsNeverTheOneWhoseMetricIsNotANumber) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.num_train_epochs = 6;
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "score";
  for (const bool greater : {true, false}) {
    args.greater_is_better = greater;
    args.output_dir = folder / (greater ? "greater" : "less");
    const auto stopping = std::make_shared<EarlyStoppingCallback>(10);
    const auto counts = std::make_shared<CountsPatience>(stopping);
    const double nan = std::nan("");
    Trainer trainer(args, {.model = small_model(),
                           .train_dataset = samples(44),
                           .eval_dataset = samples(5),
                           .compute_metrics =
                               std::make_shared<Scripted>(std::vector<double>{nan, nan, 0.3, nan, 0.5, 0.2}),
                           .callbacks = {stopping, counts}});
    trainer.train();
    EXPECT_EQ(trainer.state().best_metric, greater ? 0.5 : 0.2);
    EXPECT_EQ(trainer.state().best_global_step, greater ? 30 : 36);
    EXPECT_EQ(counts->counts,
              greater ? (std::vector<int>{0, 1, 0, 1, 0, 1}) : (std::vector<int>{0, 1, 0, 1, 2, 0}));
  }
  for (const auto& [patience, threshold] : {std::pair(0, 0.0), std::pair(-1, 0.0), std::pair(1, -0.5)})
    EXPECT_THROWS(EarlyStoppingCallback(patience, threshold), UsageError, "EarlyStoppingCallback",
                  "1 or more");
}

TrainingArguments best_at_end(const TemporaryFolder& folder) {
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "score", args.greater_is_better = true;
  args.load_best_model_at_end = true;
  return args;
}

/// The first evaluation is the best one, at step 6; the training is stopped after it.
Outcome train_best_first(const TrainingArguments& args, std::int64_t stop_at) {
  return train_on(1, args, [&](const Accelerator&) {
    TrainerComponents parts{.model = small_model(),
                            .train_dataset = samples(44),
                            .eval_dataset = samples(5),
                            .compute_metrics = std::make_shared<Scripted>(std::vector<double>{1, 0.5})};
    if (stop_at > 0) parts.callbacks.push_back(std::make_shared<testing::StopAt>(stop_at));
    return parts;
  });
}

TEST(BestModel, IsFoundWhereTheOutputFolderIsNow) {
  const TemporaryFolder folder;
  TrainingArguments args = best_at_end(folder);
  EXPECT_TRUE(train_best_first(args, 8).output.preempted);
  std::filesystem::rename(args.output_dir, folder / "moved");
  args.output_dir = folder / "moved";
  const Outcome outcome = train_best_first(args, 0);
  EXPECT_EQ(outcome.state.best_global_step, 6);
  const auto best = load_file(folder / "moved/checkpoint-6/model.safetensors").tensors;
  EXPECT_TRUE(at::equal(outcome.weights[0], best.at("0.weight")));
}

/// The third evaluation is the best one; of the steps that are saved, the second.
TEST(BestModel, IsTheBestOfThoseThatWereSaved) {
  for (const bool only_model : {false, true}) {
    const TemporaryFolder folder;
    TrainingArguments args = best_at_end(folder);
    args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
    args.eval_steps = 1, args.save_steps = 2, args.save_total_limit = 2;
    args.save_only_model = only_model;
    const auto run = [&](std::int64_t stop_at, const std::vector<double>& scores) {
      return train_on(1, args, [&](const Accelerator&) {
        TrainerComponents parts{.model = small_model(),
                                .train_dataset = samples(44),
                                .eval_dataset = samples(5),
                                .compute_metrics = std::make_shared<Scripted>(scores)};
        if (stop_at > 0) parts.callbacks.push_back(std::make_shared<testing::StopAt>(stop_at));
        return parts;
      });
    };
    if (!only_model) {
      EXPECT_TRUE(run(6, {0, 1, 2, 0}).output.preempted);
    }
    const Outcome outcome = only_model ? run(0, {0, 1, 2, 0}) : run(0, {0});
    EXPECT_EQ(outcome.state.best_global_step, 3);
    const auto best = load_file(folder / "out/checkpoint-2/model.safetensors").tensors;
    EXPECT_TRUE(at::equal(outcome.weights[0], best.at("0.weight"))) << only_model;
  }
}

/// The best evaluation, the first one, is not saved; nor is that of a checkpoint ever as good.
TEST(BestModel, IsTheBestOfThoseThatWereSavedAfterABetterOne) {
  const TemporaryFolder folder;
  TrainingArguments args = best_at_end(folder);
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = 1, args.save_steps = 2, args.save_total_limit = 2;
  const auto run = [&](std::int64_t stop_at, const std::vector<double>& scores) {
    return train_on(1, args, [&](const Accelerator&) {
      TrainerComponents parts{.model = small_model(),
                              .train_dataset = samples(44),
                              .eval_dataset = samples(5),
                              .compute_metrics = std::make_shared<Scripted>(scores)};
      if (stop_at > 0) parts.callbacks.push_back(std::make_shared<testing::StopAt>(stop_at));
      return parts;
    });
  };
  // Of the steps 2, 4, 6 and 8, the third is the best.
  EXPECT_TRUE(run(4, {9, 1, 5}).output.preempted);
  // It goes on with the evaluation of step 4.
  const Outcome outcome = run(0, {2, 1, 5, 3, 0});
  EXPECT_EQ(outcome.state.best_global_step, 1);
  const auto best = load_file(folder / "out/checkpoint-6/model.safetensors").tensors;
  EXPECT_TRUE(at::equal(outcome.weights[0], best.at("0.weight")));
}

TEST(BestModel, NeedsAnEvaluationAtEachCheckpointOfFractions) {
  const TemporaryFolder folder;
  TrainingArguments args = best_at_end(folder);
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = Duration(0.1), args.save_steps = Duration(0.2), args.max_steps = 25;
  EXPECT_THROWS(train_best_first(args, 0), UsageError, "of 25 steps", "every 5 steps", "every 3 steps");
  args.max_steps = 20;
  EXPECT_EQ(train_best_first(args, 0).output.global_step, 20);
}

/// An earlier run has left the checkpoint of the step that is the best one now, which this run does not save.
TEST(BestModel, IsNeverOneOfAnotherRunInTheSameFolder) {
  const TemporaryFolder folder;
  TrainingArguments args = best_at_end(folder);
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = 1, args.save_steps = 3;
  const auto run = [&](const std::vector<double>& scores) {
    return train_on(1, args, [&](const Accelerator&) {
      return TrainerComponents{.model = small_model(),
                               .train_dataset = samples(44),
                               .eval_dataset = samples(5),
                               .compute_metrics = std::make_shared<Scripted>(scores)};
    });
  };
  run({0});
  args.resume_from_checkpoint = "never";
  args.learning_rate = 0.01, args.save_steps = 2;
  const Outcome outcome = run({0, 1, 2, 0});
  EXPECT_EQ(outcome.state.best_global_step, 3);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/checkpoint-3")) << "of the first run";
  const auto best = load_file(folder / "out/checkpoint-2/model.safetensors").tensors;
  EXPECT_TRUE(at::equal(outcome.weights[0], best.at("0.weight")));
}

TEST(BestModel, ThatIsGoneLeavesTheLastOneWithAWarning) {
  const TemporaryFolder folder;
  const TrainingArguments args = best_at_end(folder);
  EXPECT_TRUE(train_best_first(args, 8).output.preempted);
  std::filesystem::remove_all(folder / "out/checkpoint-6");
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train_best_first(args, 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(testing::contains_all(said, {"load_best_model_at_end", "checkpoint-6", "step 18"})) << said;
  EXPECT_EQ(outcome.output.global_step, 18);
}

TEST(BestModel, WithoutAnyFiniteMetricLeavesTheLastOneWithAWarning) {
  const TemporaryFolder folder;
  const TrainingArguments args = best_at_end(folder);
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train_on(1, args, [&](const Accelerator&) {
    const std::vector<double> scores(6, std::nan(""));
    return TrainerComponents{.model = small_model(),
                             .train_dataset = samples(44),
                             .eval_dataset = samples(5),
                             .compute_metrics = std::make_shared<Scripted>(scores)};
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(testing::contains_all(said, {"load_best_model_at_end: no checkpoint belongs to an evaluation",
                                           "finite score", "the weights of step 18"}))
      << said;
  EXPECT_EQ(outcome.output.global_step, 18);
}

}  // namespace
}  // namespace lockstep
