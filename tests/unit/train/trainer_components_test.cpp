// Components of a Trainer besides its arguments, passed without adapters.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::TemporaryFolder;

/// Its forward takes a batch, so it needs no adapter.
struct TwoClassesImpl : torch::nn::Module {
  TwoClassesImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 2));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(at::linspace(-0.6, 0.7, parameter.numel()).reshape(parameter.sizes()));
  }
  Batch forward(const Batch& batch) {
    const at::Tensor logits = linear(batch["x"]);
    return {{"loss", torch::nn::functional::cross_entropy(logits, batch["labels"])}, {"logits", logits}};
  }
  torch::nn::Linear linear = nullptr;
};
TORCH_MODULE(TwoClasses);

std::shared_ptr<const Dataset> labelled(std::int64_t count) {
  const at::Tensor x = at::linspace(-1, 1, count * 3).reshape({count, 3}).sin();
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"labels", (x.sum(1) > 0.2).to(at::kLong)}});
}

/// A module that takes batches, a metric of the library, and a custom optimizer and scheduler.
class Components : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Components, ::testing::Values(1, 2));

TEST_P(Components, AreTakenAsTheyStand) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.metric_for_best_model = "f1";
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        TwoClasses net;
        const auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.5);
        const auto rates = std::make_shared<optim::LrScheduler>(
            *sgd, [](std::int64_t step) { return step < 3 ? 1.0 : 0.5; });
        Trainer trainer(accelerator, args,
                        {.model = net,
                         .train_dataset = labelled(44),
                         .eval_dataset = labelled(23),
                         .compute_metrics = metrics::Classification(2),
                         .optimizers = {sgd, rates}});
        trainer.train();
        EXPECT_EQ(trainer.optimizer(), sgd.get());
        EXPECT_EQ(rates->last_lr(), std::vector<double>{0.25});
        const LogEntry entry{trainer.evaluate()};
        std::vector<std::int64_t> rows(23);
        std::iota(rows.begin(), rows.end(), 0);
        const Batch all = labelled(23)->get_batch(rows, std::vector<SampleContext>(rows.size()));
        metrics::Classification expected(2);
        expected.update(net->forward(all)["logits"], all["labels"]);
        EXPECT_EQ(entry.find("eval_accuracy"), expected.accuracy());
        EXPECT_EQ(entry.find("eval_f1"), expected.f1({.average = metrics::Average::binary}));
        EXPECT_GT(*entry.find("eval_f1"), 0.8);
        EXPECT_FALSE(net->is_training()) << "as transformers leaves it";
        EXPECT_EQ(trainer.metric_names("eval"),
                  (std::vector<std::string>{"eval_loss", "eval_accuracy", "eval_f1", "eval_runtime",
                                            "eval_samples_per_second", "eval_steps_per_second"}));
      },
      accelerator_options(args));
}

/// A metric of sums, and one of all samples.
TEST_P(Components, MeasureSeveralMetrics) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments(folder);
  const auto rows = [](const EvaluationPrediction& all) -> Metrics {
    return {{"rows", static_cast<double>(all.inputs.size())}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        const auto evaluate = [&](const std::vector<ComputeMetrics>& metrics) {
          Trainer trainer(accelerator, args,
                          {.model = TwoClasses(), .eval_dataset = labelled(23), .compute_metrics = metrics});
          return LogEntry{trainer.evaluate()};
        };
        const LogEntry alone = evaluate({metrics::Classification(2)});
        const LogEntry both = evaluate({metrics::Classification(2), rows});
        EXPECT_TRUE(alone.find("eval_f1"));
        EXPECT_EQ(both.find("eval_f1"), alone.find("eval_f1"));
        EXPECT_EQ(both.find("eval_rows"), 23);
        EXPECT_THROWS(evaluate({metrics::Classification(2), metrics::Accuracy()}), UsageError, "'accuracy'",
                      "prefix");
        EXPECT_THROWS(evaluate({nullptr}), UsageError, "null");
      },
      accelerator_options(args));
}

/// Rows are padded with -100, which bytes cannot be: these need no padding.
TEST_P(Components, MeasureBytes) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments(folder);
  const at::Tensor pixels = at::arange(23 * 4).reshape({23, 4}).to(at::kByte);
  const auto images = std::make_shared<TensorDataset>(Batch{{"x", pixels.narrow(1, 0, 3).to(at::kFloat) / 92},
                                                            {"labels", at::zeros({23}, at::kLong)},
                                                            {"pixels", pixels}});
  const auto sum = [](const EvaluationPrediction& all) -> Metrics {
    return {{"sum", all.inputs["pixels"].sum().item<double>()}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = TwoClasses(), .eval_dataset = images, .compute_metrics = sum});
        EXPECT_EQ(LogEntry{trainer.evaluate()}.find("eval_sum"), pixels.sum().item<double>());
      },
      accelerator_options(args));
}

TEST_P(Components, ReplaceTheLoss) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments(folder);
  const auto loss = [](const EvaluationPrediction&) -> Metrics { return {{"loss", 7.0}}; };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = TwoClasses(), .eval_dataset = labelled(23), .compute_metrics = loss});
        const LogEntry entry{trainer.evaluate()};
        EXPECT_EQ(entry.find("eval_loss"), 7);
        EXPECT_EQ(std::ranges::count(entry.values, "eval_loss", &LogValues::value_type::first), 1);
      },
      accelerator_options(args));
}

/// The mean over a batch without a label is NaN.
TEST_P(Components, LeaveBatchesWithoutALossOut) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  std::vector<std::int64_t> rows(23);
  std::iota(rows.begin(), rows.end(), 0);
  Batch all = labelled(23)->get_batch(rows, std::vector<SampleContext>(rows.size()));
  all["labels"].narrow(0, 0, 6).fill_(-100);
  all.indices.clear();
  const auto some = std::make_shared<TensorDataset>(all);
  const auto others = std::make_shared<Subset>(some, std::vector<std::int64_t>(rows.begin() + 6, rows.end()));
  const auto loss_of = [&](const std::shared_ptr<const Dataset>& dataset) {
    double loss = 0;
    testing::run_accelerators(
        GetParam(),
        [&](const Accelerator& accelerator) {
          Trainer trainer(accelerator, args, {.model = TwoClasses(), .eval_dataset = dataset});
          const double found = *LogEntry{trainer.evaluate()}.find("eval_loss");
          if (accelerator.is_main_process()) loss = found;
        },
        accelerator_options(args));
    return loss;
  };
  ::testing::internal::CaptureStderr();
  EXPECT_NEAR(loss_of(some), loss_of(others), 1e-6);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(testing::contains_all(said, {"2 of the 8 batches", "not finite", "eval_loss"})) << said;
  args.logging_nan_inf_filter = false;
  EXPECT_TRUE(std::isnan(loss_of(some)));
}

TEST_P(Components, KeepANameThatHasThePrefix) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.metric_for_best_model = "rows";
  const auto rows = [](const EvaluationPrediction& all) -> Metrics {
    return {{"eval_rows", static_cast<double>(all.inputs.size())}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = TwoClasses(),
                         .train_dataset = labelled(44),
                         .eval_dataset = labelled(23),
                         .compute_metrics = rows});
        trainer.train();
        EXPECT_EQ(trainer.state().best_metric, 23);
        EXPECT_EQ(LogEntry{trainer.evaluate()}.find("eval_rows"), 23);
        EXPECT_EQ(LogEntry{trainer.predict(labelled(5)).metrics}.find("test_eval_rows"), 5);
      },
      accelerator_options(args));
}

/// Like that of a test set of a competition.
std::shared_ptr<const Dataset> unlabelled(std::int64_t count) {
  return std::make_shared<TensorDataset>(
      Batch{{"x", at::linspace(-1, 1, count * 3).reshape({count, 3}).sin()}});
}

std::vector<std::string> names_of(const LogValues& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

/// transformers' predict() returns the same predictions and metrics, but for its test_model_preparation_time;
/// so does its evaluate().
TEST_P(Components, PredictSamplesWithoutLabels) {
  using Names = std::vector<std::string>;
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const Names speed{"test_runtime", "test_samples_per_second", "test_steps_per_second"};
  const Names all{"test_loss", "test_rows", "test_runtime", "test_samples_per_second",
                  "test_steps_per_second"};
  const auto model = wrap_model(torch::nn::Linear(3, 2), [](auto& net, const Batch& batch) {
    return Batch{{"logits", net(batch["x"])}};
  });
  const auto loss = [](const Batch& outputs, const Batch& batch) -> Loss {
    return {torch::nn::functional::cross_entropy(outputs["logits"], batch["labels"])};
  };
  const auto rows = [](const EvaluationPrediction& samples) -> Metrics {
    return {{"rows", static_cast<double>(samples.inputs["labels"].size(0))}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        for (const Names& labels : {Names{}, Names{"labels"}, Names{"other"}}) {
          args.label_names = labels;
          TrainerComponents parts{.model = model, .compute_loss = loss, .compute_metrics = rows};
          if (labels.empty()) parts.train_dataset = labelled(8);
          Trainer trainer(accelerator, args, parts);
          const PredictionOutput without = trainer.predict(unlabelled(7));
          EXPECT_EQ(names_of(without.metrics), speed);
          const PredictionOutput with = trainer.predict(labelled(7));
          EXPECT_EQ(names_of(with.metrics), labels == Names{"other"} ? speed : all);
          EXPECT_EQ(with.predictions["logits"].size(0), 7);
          EXPECT_TRUE(at::equal(without.predictions["logits"], with.predictions["logits"]));
          EXPECT_EQ(names_of(trainer.evaluate(unlabelled(7), "test")), speed);
        }
        // Nothing tells whether there should be labels.
        args.label_names = {};
        Trainer trainer(accelerator, args, {.model = model, .compute_loss = loss});
        EXPECT_THROWS(trainer.predict(unlabelled(7)), UsageError, "no tensor named 'labels'");
      },
      accelerator_options(args));
}

TEST_P(Components, RefuseMetricsOfSamplesOfWhichOnlySomeHaveLabels) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.label_names = {"labels"};
  const auto model = wrap_model(torch::nn::Linear(3, 2), [](auto& net, const Batch& batch) {
    return Batch{{"logits", net(batch["x"])}};
  });
  const auto some = [](std::vector<Example> samples) {
    Batch batch = default_collate(std::move(samples));
    return batch["labels"].any().item<bool>() ? batch : Batch{{"x", batch["x"]}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = model,
                         .data_collator = some,
                         .compute_metrics = [](const EvaluationPrediction&) -> Metrics { return {}; }});
        EXPECT_THROWS(trainer.predict(labelled(24)), UsageError, "batches of test have labels",
                      "label_names");
      },
      accelerator_options(args));
}

/// Batches of 8 and 4 samples have outputs of as many columns, on one rank or on two.
TEST_P(Components, HavePredictionsOfDifferentLengthsUnlessTheirTypeCannotBePadded) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.per_device_eval_batch_size = 8;
  const auto predicted = [&](const Accelerator& accelerator, at::ScalarType type) {
    const auto model = wrap_model(torch::nn::Linear(3, 1), [type](auto&, const Batch& batch) {
      return Batch{{"wide", at::ones({batch.size(), batch.size()}, type)}};
    });
    Trainer trainer(accelerator, args, {.model = model});
    return trainer.predict(labelled(12)).predictions["wide"];
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        at::Tensor wide = at::ones({12, 8}, at::kInt);
        wide.narrow(0, 8, 4).narrow(1, 4, 4).fill_(-100);
        EXPECT_TRUE(at::equal(predicted(accelerator, at::kInt), wide));
        EXPECT_TRUE(at::equal(predicted(accelerator, at::kByte), wide.to(at::kShort)));
        EXPECT_THROWS(predicted(accelerator, at::kUInt64), UsageError, "'wide'", "-100", "UInt64");
      },
      accelerator_options(args));
}

/// Rows are as long as their batch's largest number: padding is no value that the rows may have.
TEST_P(Components, PadColumnsOfAnyType) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.per_device_eval_batch_size = 2;
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        const auto model = wrap_model(torch::nn::Linear(3, 1), [](auto& net, const Batch& batch) {
          const auto width = batch["number"].max().template item<std::int64_t>() + 1;
          const at::Tensor ones = at::ones({batch.size(), width});
          return Batch{{"prediction", net(batch["x"])},
                       {"mask", ones.to(at::kBool)},
                       {"bytes", ones.mul(200).to(at::kByte)},
                       {"words", ones.mul(60000).to(at::kUInt16)},
                       {"numbers", ones.to(at::kLong)}};
        });
        Trainer trainer(accelerator, args, {.model = model});
        const auto data =
            std::make_shared<TensorDataset>(Batch{{"x", at::zeros({4, 3})}, {"number", at::arange(4)}});
        const Batch all = trainer.predict(data).predictions;
        EXPECT_EQ(all["mask"].scalar_type(), at::kBool);
        EXPECT_EQ(all["bytes"].scalar_type(), at::kShort);
        EXPECT_EQ(all["words"].scalar_type(), at::kInt);
        const at::Tensor real = all["mask"];
        EXPECT_LT(real.sum().item<std::int64_t>(), 16) << "false where a row has ended";
        EXPECT_TRUE(at::equal(all["bytes"] == 200, real));
        EXPECT_TRUE(at::equal(all["bytes"] == -100, real.logical_not()));
        EXPECT_TRUE(at::equal(all["words"] == 60000, real));
        EXPECT_TRUE(at::equal(all["numbers"] == -100, real.logical_not()));
      },
      accelerator_options(args));
}

}  // namespace
}  // namespace lockstep
