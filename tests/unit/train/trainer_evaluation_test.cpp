// Evaluations during training: data sets by name, metrics of all samples at once, and signals.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using testing::train_on;

class Evaluations : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Evaluations, ::testing::Values(1, 2));

TrainerComponents named_parts() {
  return {.model = small_model(),
          .train_dataset = samples(44),
          .eval_datasets = {{"long", samples(19)}, {"short", samples(2)}}};
}

TEST_P(Evaluations, HaveTheNamesOfTheirDataSets) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "long_loss";
  const Outcome outcome = train_on(GetParam(), args, [&](const Accelerator&) {
    TrainerComponents parts = named_parts();
    parts.callbacks.push_back(std::make_shared<EarlyStoppingCallback>(2));
    return parts;
  });
  for (const char* name : {"eval_long_loss", "eval_short_loss", "eval_long_runtime", "eval_short_runtime"})
    EXPECT_EQ(outcome.logged(name).size(), 3U) << name;
  EXPECT_TRUE(outcome.logged("eval_loss").empty());
  const auto losses = outcome.logged("eval_long_loss");
  EXPECT_EQ(outcome.state.best_metric, *std::min_element(losses.begin(), losses.end()));
}

TEST(EvaluationChecks, ComeBeforeTheFirstStep) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const auto train = [&](TrainerComponents parts) {
    Trainer trainer(args, std::move(parts));
    try {
      trainer.train();
    } catch (...) {
      EXPECT_EQ(trainer.state().global_step, 0);
      throw;
    }
  };
  args.eval_strategy = IntervalStrategy::epoch;
  EXPECT_THROWS(train({.model = small_model(), .train_dataset = samples(8)}), UsageError,
                "eval_strategy is epoch", "no data set to evaluate on");
  args.save_strategy = SaveStrategy::best;
  EXPECT_THROWS(train(named_parts()), UsageError, "'eval_loss'", "they return eval_long_loss",
                "eval_short_loss");
  args.save_strategy = SaveStrategy::no;
  TrainerComponents stopping = named_parts();
  stopping.callbacks.push_back(std::make_shared<EarlyStoppingCallback>());
  EXPECT_THROWS(train(stopping), UsageError, "EarlyStoppingCallback", "metric_for_best_model");
}

/// A run that early stopping has ended has nothing left to do when it is started again, and prints how to
/// continue training.
TEST(EarlyStopping, IsNotForgottenByTheNextStart) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "loss";
  const auto train = [&](std::int64_t patience) {
    Trainer trainer(args,
                    {.model = small_model(),
                     .train_dataset = samples(44),
                     .eval_dataset = samples(8),
                     .callbacks = {std::make_shared<EarlyStoppingCallback>(patience, /*threshold=*/100)}});
    ::testing::internal::CaptureStdout();
    const TrainOutput output = trainer.train();
    return std::pair(output, ::testing::internal::GetCapturedStdout());
  };
  EXPECT_EQ(train(1).first.global_step, 12) << "the second evaluation is no better";
  const auto [again, said] = train(1);
  EXPECT_EQ(again.global_step, 12);
  EXPECT_TRUE(testing::contains_all(said, {"already finished: step 12 of 18", "patience", "never"}));
  EXPECT_FALSE(LogEntry{again.metrics}.find("train_loss"));
  const auto [more, steps] = train(3);
  EXPECT_EQ(more.global_step, 18);
  EXPECT_TRUE(testing::contains_all(steps, {"train_loss is the mean of the steps 13 to 18"}));
  EXPECT_TRUE(
      testing::contains_all(train(3).second, {"already finished: step 18 of 18", "num_train_epochs"}));
}

/// Two metrics, whose names it may state in advance.
class Pair final : public EvaluationMetrics {
 public:
  explicit Pair(bool says_names) : says_names_(says_names) {}
  void reset() override {}
  void update(const Batch& /*outputs*/, const Batch& /*batch*/) override {}
  LogValues compute(const ProcessGroup& /*group*/) override { return {{"accuracy", 0.5}, {"f1", 0.25}}; }
  std::vector<std::string> names() const override {
    return says_names_ ? std::vector<std::string>{"accuracy", "f1"} : std::vector<std::string>{};
  }

 private:
  bool says_names_;
};

/// The step at which a training with this metric_for_best_model ends, and the error.
std::pair<std::int64_t, std::string> end_of_training(TrainingArguments args, const std::string& metric,
                                                     bool says_names) {
  const TemporaryFolder folder;
  args.output_dir = folder / "out";
  args.metric_for_best_model = metric;
  Trainer trainer(args, {.model = small_model(),
                         .train_dataset = samples(44),
                         .eval_dataset = samples(5),
                         .compute_metrics = std::make_shared<Pair>(says_names)});
  std::string message;
  try {
    trainer.train();
  } catch (const UsageError& error) {
    message = error.what();
  }
  return {trainer.state().global_step, message};
}

TEST(EvaluationChecks, FindAMisspeltMetricBeforeTheFirstStepOrInTheFirstEvaluation) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 3;
  using testing::contains_all;
  const auto [known_step, known] = end_of_training(args, "acuracy", true);
  EXPECT_EQ(known_step, 0);
  EXPECT_TRUE(contains_all(known, {"'eval_acuracy'", "eval_loss, eval_accuracy, eval_f1", "metric_names()"}));
  const auto [step, message] = end_of_training(args, "acuracy", false);
  EXPECT_EQ(step, 3);
  EXPECT_TRUE(contains_all(message, {"'eval_acuracy'", "eval_loss, eval_accuracy, eval_f1"}));
  for (const char* metric : {"accuracy", "eval_f1", "loss", "runtime"})
    EXPECT_EQ(end_of_training(args, metric, true), std::pair(std::int64_t{18}, std::string())) << metric;
  args.eval_on_start = true;
  EXPECT_EQ(end_of_training(args, "acuracy", false).first, 0) << "the first evaluation";
  args.prediction_loss_only = true;
  EXPECT_TRUE(contains_all(end_of_training(args, "f1", true).second, {"'eval_f1'", "metric_names()"}));
}

/// Its evaluations have an additional metric.
class WithScore final : public Trainer {
 public:
  using Trainer::Trainer;
  LogValues evaluate(std::shared_ptr<const Dataset> dataset, const std::string& prefix) override {
    LogValues values = Trainer::evaluate(std::move(dataset), prefix);
    values.emplace_back(prefix + "_score", 1);
    return values;
  }
  std::vector<std::string> metric_names(const std::string& prefix) const override {
    auto names = Trainer::metric_names(prefix);
    names.push_back(prefix + "_score");
    return names;
  }
};

TEST(EvaluationChecks, TakeWhatAnEvaluateOfOnesOwnAdds) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.metric_for_best_model = "score";
  const TrainerComponents parts{
      .model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(5)};
  WithScore trainer(args, parts);
  trainer.train();
  EXPECT_EQ(trainer.state().best_metric, 1);
  EXPECT_THROWS(Trainer(args, parts).train(), UsageError, "'eval_score'");
}

/// Not a sum: the median of all errors, the number of calls, and the number of rows.
class Median final : public EvaluationMetrics {
 public:
  void reset() override { calls_ = rows_ = median_ = 0; }
  void update(const Batch& outputs, const Batch& batch) override {
    ++calls_;
    rows_ += static_cast<double>(batch.size());
    median_ = (outputs["prediction"] - batch["y"]).abs().median().item<double>();
    EXPECT_TRUE(std::is_sorted(batch.indices.begin(), batch.indices.end()));
  }
  LogValues compute(const ProcessGroup& group) override {
    const auto of_rank_0 =
        group.broadcast_object(nlohmann::json{calls_, rows_, median_}).get<std::vector<double>>();
    return {{"calls", of_rank_0[0]}, {"rows", of_rank_0[1]}, {"median", of_rank_0[2]}};
  }

 private:
  double calls_ = 0, rows_ = 0, median_ = 0;
};

LogValues medians(int ranks, bool of_batches) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.batch_eval_metrics = of_batches;
  LogValues metrics;
  testing::run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = small_model(), .compute_metrics = std::make_shared<Median>()});
        const LogValues own = trainer.evaluate(samples(23));
        const auto predicted = LogEntry{trainer.predict(samples(23)).metrics};
        EXPECT_EQ(predicted.find("test_median"), LogEntry{own}.find("eval_median"));
        if (accelerator.process_index() == ranks - 1) metrics = own;
      },
      accelerator_options(args));
  return metrics;
}

double median_of_all() {
  std::vector<std::int64_t> rows(23);
  std::iota(rows.begin(), rows.end(), 0);
  const Batch all = samples(23)->get_batch(rows, std::vector<SampleContext>(rows.size()));
  const auto model = small_model();
  return (model->evaluate(all)["prediction"] - all["y"]).abs().median().item<double>();
}

/// Like Hugging Face's compute_metrics: a function of all samples, whatever the number of ranks and batches.
TEST_P(Evaluations, TakeAFunctionOfAllSamples) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments(folder);
  std::atomic<int> calls = 0;
  const auto median = [&](const EvaluationPrediction& all) -> Metrics {
    ++calls;
    EXPECT_EQ(all.inputs.size(), 23);
    return {{"median", (all.predictions["prediction"] - all.inputs["y"]).abs().median().item<double>()},
            {"nothing", std::nan("")}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, {.model = small_model(), .compute_metrics = median});
        const LogEntry entry{trainer.evaluate(samples(23))};
        // A product of other rows may be rounded in another way.
        EXPECT_NEAR(entry.find("eval_median").value(), median_of_all(), 1e-6) << "on every rank";
        EXPECT_TRUE(std::isnan(*entry.find("eval_nothing")));
        Trainer wrong(accelerator, args,
                      {.model = small_model(), .compute_metrics = [](const EvaluationPrediction&) -> Metrics {
                         throw DataError("no such label");
                       }});
        EXPECT_THROWS(wrong.evaluate(samples(23)), Error, "no such label");
      },
      accelerator_options(args));
  EXPECT_EQ(calls, 1) << "on rank 0 alone";
}

TEST_P(Evaluations, ShowMetricsBatchesOrAllSamplesAtOnce) {
  const LogEntry batches{medians(GetParam(), true)};
  EXPECT_EQ(batches.find("eval_calls"), GetParam() == 1 ? 8 : 4);
  const LogEntry all{medians(GetParam(), false)};
  EXPECT_EQ(all.find("eval_calls"), 1);
  EXPECT_EQ(all.find("eval_rows"), 23);
  EXPECT_NEAR(all.find("eval_median").value(), median_of_all(), 1e-6);
}

/// Tells one rank to stop, like a signal, after a number of its evaluation batches.
class SignalInEvaluation final : public TrainerCallback {
 public:
  SignalInEvaluation(std::int64_t batch, int rank) : left_(batch), rank_(rank) {}
  void on_prediction_step(CallbackContext& event) override {
    if (event.trainer.accelerator().process_index() != rank_ || --left_ != 0) return;
    event.trainer.accelerator().request_stop();
  }

 private:
  std::int64_t left_;
  int rank_;
};

/// Trains with two named data sets of 7 batches and 1, and a signal after `batch` batches on the last rank;
/// 0: no signal.
Outcome train_with_signal(int ranks, const TrainingArguments& args, std::int64_t batch) {
  return train_on(ranks, args, [&](const Accelerator&) {
    TrainerComponents parts = named_parts();
    const bool judges = args.save_strategy != SaveStrategy::no && args.metric_for_best_model == "long_loss";
    if (judges) parts.callbacks.push_back(std::make_shared<EarlyStoppingCallback>(5));
    if (batch > 0) parts.callbacks.push_back(std::make_shared<SignalInEvaluation>(batch, ranks - 1));
    return parts;
  });
}

/// Everything that was logged, except times and the totals of a run: names, steps and values.
std::vector<std::string> log_of(const Outcome& outcome) {
  std::vector<std::string> lines;
  for (const auto& entry : outcome.state.log_history) {
    for (const auto& [name, value] : entry.values) {
      const bool of_run = name.starts_with("train_") || name.ends_with("_per_second");
      if (!of_run && !name.ends_with("_runtime"))
        lines.push_back(std::to_string(entry.step) + " " + name + " " + std::to_string(value));
    }
  }
  return lines;
}

/// Compares a run that a signal stops in an evaluation and that resumes with an uninterrupted one.
void expect_interruption(int ranks, TrainingArguments args, std::int64_t batch, std::int64_t step) {
  SCOPED_TRACE("signal after batch " + std::to_string(batch));
  const TemporaryFolder folder;
  args.output_dir = folder / "whole";
  const Outcome whole = train_with_signal(ranks, args, 0);
  args.output_dir = folder / "parts";
  const Outcome stopped = train_with_signal(ranks, args, batch);
  EXPECT_TRUE(stopped.output.preempted);
  EXPECT_EQ(stopped.output.global_step, step);
  EXPECT_LT(log_of(stopped).size(), log_of(whole).size());
  const Outcome resumed = train_with_signal(ranks, args, 0);
  EXPECT_FALSE(resumed.output.preempted);
  EXPECT_EQ(log_of(resumed), log_of(whole));
  EXPECT_EQ(resumed.state.best_metric, whole.state.best_metric);
  EXPECT_EQ(resumed.state.best_global_step, whole.state.best_global_step);
  EXPECT_EQ(resumed.state.stateful_callbacks, whole.state.stateful_callbacks);
  expect_same(whole, resumed);
}

TEST_P(Evaluations, StopAtASignalAndAreDoneWhenTheTrainingResumes) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.metric_for_best_model = "long_loss";
  args.save_strategy = SaveStrategy::steps, args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = args.save_steps = GetParam() == 1 ? 4 : 2;
  // In the first data set rank 0 has 7 batches, or 4 of 7; in the second, the only one.
  expect_interruption(GetParam(), args, 2, args.eval_steps->steps({}));
  if (GetParam() == 1) expect_interruption(1, args, 8, 4);
  args.save_strategy = SaveStrategy::epoch, args.eval_strategy = IntervalStrategy::epoch;
  expect_interruption(GetParam(), args, 2, GetParam() == 1 ? 6 : 3);
}

/// Requests the end in the evaluation of the first data set, in step 4 or 2.
class EndsAfterTheFirst final : public TrainerCallback {
 public:
  void on_evaluate(CallbackContext& event) override {
    if (LogEntry{event.values}.find("eval_long_loss")) event.control.should_training_stop = true;
  }
};

/// What a callback requested before the signal is saved: the callback is not called again.
TEST_P(Evaluations, EndTheTrainingAfterASignalWhereTheyWereToldTo) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = GetParam() == 1 ? 4 : 2;
  const auto train = [&](const char* name, bool signal) {
    args.output_dir = folder / name;
    return train_on(GetParam(), args, [&](const Accelerator& accelerator) {
      TrainerComponents parts = named_parts();
      parts.eval_datasets = {{"long", samples(19)}, {"longer", samples(31)}};
      parts.callbacks.push_back(std::make_shared<EndsAfterTheFirst>());
      // In the first data set rank 0 has 7 batches, or 4.
      if (signal && accelerator.is_main_process())
        parts.callbacks.push_back(std::make_shared<SignalInEvaluation>(GetParam() == 1 ? 9 : 6, 0));
      return parts;
    });
  };
  const Outcome whole = train("whole", false);
  EXPECT_EQ(whole.output.global_step, args.eval_steps->steps({}));
  EXPECT_TRUE(train("parts", true).output.preempted);
  const Outcome resumed = train("parts", false);
  EXPECT_EQ(log_of(resumed), log_of(whole));
  expect_same(whole, resumed);
}

TEST_P(Evaluations, StopAfterTheLastStepToo) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 2;
  args.metric_for_best_model = "long_loss";
  args.save_strategy = SaveStrategy::steps, args.eval_strategy = IntervalStrategy::steps;
  args.load_best_model_at_end = true;
  expect_interruption(GetParam(), args, 1, 2);
}

/// The step has a checkpoint already, from before the evaluation.
TEST_P(Evaluations, StopAfterACheckpointOfTheirStep) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 1;
  args.eval_strategy = IntervalStrategy::epoch;
  const std::int64_t steps = GetParam() == 1 ? 6 : 3;
  expect_interruption(GetParam(), args, 2, steps);
  // In that of the last epoch.
  args.num_train_epochs = 1;
  expect_interruption(GetParam(), args, 2, steps);
}

/// A signal in the last step does not change the end of training.
TEST_P(Evaluations, OfTheLastEpochAreMadeAfterASignalInItsLastStep) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.num_train_epochs = 1;
  args.save_strategy = SaveStrategy::epoch, args.eval_strategy = IntervalStrategy::epoch;
  const Outcome whole = train_with_signal(GetParam(), args, 0);
  args.output_dir = folder / "stopped";
  const auto run = [&](bool signal) {
    return train_on(GetParam(), args, [&](const Accelerator&) {
      TrainerComponents parts = named_parts();
      if (signal) parts.callbacks = {std::make_shared<testing::StopAt>(GetParam() == 1 ? 6 : 3)};
      return parts;
    });
  };
  const Outcome first = run(true);
  const Outcome last = first.output.preempted ? run(false) : first;
  EXPECT_EQ(log_of(last), log_of(whole));
  expect_same(whole, last);
}

/// A callback's own predictions are interrupted as well.
class PredictsAtEpochEnd final : public TrainerCallback {
 public:
  void on_epoch_end(CallbackContext& event) override { event.trainer.predict(samples(30)); }
};

TEST_P(Evaluations, LeaveThePredictionsOfACallback) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.num_train_epochs = 1;
  const auto train = [&](bool signal) {
    return train_on(GetParam(), args, [&](const Accelerator&) {
      TrainerComponents parts{.model = small_model(), .train_dataset = samples(44)};
      parts.callbacks = {std::make_shared<PredictsAtEpochEnd>()};
      if (signal) parts.callbacks.push_back(std::make_shared<SignalInEvaluation>(1, 0));
      return parts;
    });
  };
  EXPECT_TRUE(train(true).output.preempted);
  EXPECT_FALSE(train(false).output.preempted);
}

/// "four" has as many rows as the last batch of rank 0, and "sum" none at all.
TEST_P(Evaluations, LeaveOutWhatHasNoRowForEachSample) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.per_device_eval_batch_size = 8;
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        const auto model = wrap_model(torch::nn::Linear(3, 1), [](auto& net, const Batch& batch) {
          const at::Tensor prediction = net(batch["x"]);
          return Batch{{"prediction", prediction}, {"four", at::ones({4})}, {"sum", prediction.sum()}};
        });
        Trainer trainer(accelerator, args, {.model = model});
        const Batch all = trainer.predict(samples(12)).predictions;
        EXPECT_EQ(all.names(), std::vector<std::string>{"prediction"});
        EXPECT_EQ(all.size(), 12);
      },
      accelerator_options(args));
}

TEST_P(Evaluations, TakeLossesAndWeightsOfOneElement) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  const auto losses = [&](bool one_element) {
    return train_on(GetParam(), args,
                    [&](const Accelerator&) {
                      TrainerComponents parts{.model = small_model(), .train_dataset = samples(44)};
                      parts.eval_dataset = samples(13);
                      parts.compute_loss = [one_element](const Batch& outputs, const Batch& batch) {
                        const auto shape =
                            one_element ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{};
                        const at::Tensor sum = (outputs["prediction"] - batch["y"]).square().sum();
                        const at::Tensor weight =
                            at::full({}, static_cast<double>(batch.size()), at::kDouble);
                        return Loss{sum.reshape(shape), weight.reshape(shape)};
                      };
                      return parts;
                    })
        .logged("eval_loss");
  };
  EXPECT_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace lockstep
