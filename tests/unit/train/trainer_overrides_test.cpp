// Methods that programs override: each is called, and its result is used.

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::outcome_of;
using testing::samples;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;

TrainerComponents overridden_parts() {
  return {.model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(13)};
}

/// Trains on `ranks` ranks with a trainer of class Own; returns rank 0's outcome. `look` is called with every
/// rank's trainer.
template <class Own>
Outcome train_as(int ranks, const TrainingArguments& args, const TrainerComponents& more = {},
                 const std::function<void(Own&)>& look = {}) {
  Outcome outcome;
  testing::run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        TrainerComponents parts = overridden_parts();
        parts.callbacks = more.callbacks;
        parts.compute_loss = more.compute_loss;
        Own trainer(accelerator, args, parts);
        const TrainOutput output = trainer.train();
        if (look) look(trainer);
        if (accelerator.is_main_process()) outcome = outcome_of(trainer, output);
      },
      accelerator_options(args));
  return outcome;
}

class OverriddenRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Overrides, OverriddenRanks, ::testing::Values(1, 2));

/// Doubles the loss of its steps.
class TwiceTheLoss final : public Trainer {
 public:
  using Trainer::Trainer;
  Loss training_step(const Batch& batch) override {
    const at::Tensor loss = 2 * model().forward(batch)["loss"];
    accelerator().backward(loss);
    return {loss};
  }
};

TEST_P(OverriddenRanks, StepAsTheySay) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments(folder);
  TrainerComponents doubled;
  doubled.compute_loss = [](const Batch& outputs, const Batch&) -> Loss { return {2 * outputs["loss"]}; };
  const Outcome expected = train_as<Trainer>(GetParam(), args, doubled);
  expect_same(train_as<TwiceTheLoss>(GetParam(), args), expected);
  EXPECT_NE(train_as<Trainer>(GetParam(), args).logged("loss"), expected.logged("loss"));
}

/// Its evaluations return the samples' indices, and a loss of 3 for the first and 5 for all others.
class OwnPredictions final : public Trainer {
 public:
  using Trainer::Trainer;
  EvaluationStep prediction_step(const Batch& batch, bool /*loss_only*/) override {
    const at::Tensor numbers = at::tensor(batch.indices, at::kLong);
    const at::Tensor losses = 5 - 2 * (numbers == 0).to(at::kDouble);
    return {.loss = {losses.sum(), static_cast<double>(batch.size())}, .outputs = {{"number", numbers}}};
  }
};

TEST_P(OverriddenRanks, PredictAsTheySay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  const double mean = (3 + 5.0 * 12) / 13;
  const Outcome outcome = train_as<OwnPredictions>(GetParam(), args, {}, [&](OwnPredictions& trainer) {
    const auto output = trainer.predict(samples(13));
    EXPECT_TRUE(at::equal(output.predictions["number"], at::arange(13)));
    EXPECT_FALSE(output.predictions.contains("prediction"));
    EXPECT_NEAR(LogEntry{output.metrics}.find("test_loss").value(), mean, 1e-12);
  });
  ASSERT_EQ(outcome.logged("eval_loss").size(), 3U);
  for (const double loss : outcome.logged("eval_loss")) EXPECT_NEAR(loss, mean, 1e-12);
}

/// Its optimizer's state is sharded over the ranks.
class Divided final : public Trainer {
 public:
  using Trainer::Trainer;
  std::unique_ptr<torch::optim::Optimizer> create_optimizer() override {
    return std::make_unique<optim::ZeroRedundancyOptimizer>(Trainer::create_optimizer(),
                                                            accelerator().process_group());
  }
};

TEST_P(OverriddenRanks, DivideTheOptimizer) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.output_dir = folder / "plain";
  const Outcome plain = train_as<Trainer>(GetParam(), args);
  args.output_dir = folder / "divided";
  std::map<int, std::size_t> states;
  std::mutex mutex;
  const auto look = [&](Divided& trainer) {
    auto* const zero = dynamic_cast<optim::ZeroRedundancyOptimizer*>(trainer.optimizer());
    ASSERT_NE(zero, nullptr);
    const std::lock_guard lock(mutex);
    states[trainer.accelerator().process_index()] = zero->local_optimizer().state().size();
  };
  expect_same(train_as<Divided>(GetParam(), args, {}, look), plain);
  std::size_t sum = 0;
  for (const auto& [rank, count] : states) {
    EXPECT_GT(count, 0U) << rank;
    sum += count;
  }
  EXPECT_EQ(sum, plain.weights.size()) << "each parameter's state is on one rank";
  args.output_dir = folder / "parts";
  const TrainerComponents stop{.model = nullptr, .callbacks = {std::make_shared<StopAt>(5)}};
  EXPECT_TRUE(train_as<Divided>(GetParam(), args, stop).output.preempted);
  expect_same(train_as<Divided>(GetParam(), args), plain);
}

/// Halves the learning rates after each step, and records the metrics that it gets.
class Halving final : public optim::Scheduler {
 public:
  explicit Halving(torch::optim::Optimizer& optimizer) : Scheduler(optimizer) {}
  void step() override {
    const auto rates = last_lr();
    for (std::size_t group = 0; group < groups(); ++group) set_lr(group, rates[group] / 2);
  }
  void step(double metric) override { metrics.push_back(metric); }
  std::string state_dict() const override { return nlohmann::json(last_lr()).dump(); }
  void load_state_dict(const std::string& text) override {
    const auto rates = nlohmann::json::parse(text).get<std::vector<double>>();
    for (std::size_t group = 0; group < groups(); ++group) set_lr(group, rates.at(group));
  }
  std::vector<double> metrics;
};

/// Records the number of steps to plan for, and returns its own schedule, or none.
class OwnSchedule final : public Trainer {
 public:
  using Trainer::Trainer;
  std::unique_ptr<optim::Scheduler> create_scheduler(torch::optim::Optimizer& optimizer,
                                                     std::int64_t training_steps,
                                                     std::int64_t warmup_steps) override {
    planned = {training_steps, warmup_steps};
    if (args().lr_scheduler_type == "constant") return nullptr;
    return std::make_unique<Halving>(optimizer);
  }
  std::pair<std::int64_t, std::int64_t> planned;
};

TEST_P(OverriddenRanks, ScheduleAsTheySay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 6;
  args.warmup_steps = 2;
  args.eval_steps = args.logging_steps = 1;
  args.eval_strategy = IntervalStrategy::steps;
  args.metric_for_best_model = "loss";
  const TrainerComponents stop{.model = nullptr, .callbacks = {std::make_shared<StopAt>(3)}};
  EXPECT_TRUE(train_as<OwnSchedule>(GetParam(), args, stop).output.preempted);
  std::vector<double> metrics;
  const Outcome outcome = train_as<OwnSchedule>(GetParam(), args, {}, [&](OwnSchedule& trainer) {
    EXPECT_EQ(trainer.planned, (std::pair<std::int64_t, std::int64_t>{6, 2}));
    if (trainer.accelerator().is_main_process())
      metrics = dynamic_cast<Halving&>(*trainer.scheduler()).metrics;
  });
  EXPECT_EQ(outcome.logged("learning_rate"),
            (std::vector{0.05, 0.05 / 2, 0.05 / 4, 0.05 / 8, 0.05 / 16, 0.05 / 32}));
  const auto losses = outcome.logged("eval_loss");
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_EQ(metrics, std::vector(losses.end() - static_cast<std::ptrdiff_t>(metrics.size()), losses.end()));
  EXPECT_GE(metrics.size(), 2U);
  args.lr_scheduler_type = "constant";
  args.output_dir = folder / "none";
  EXPECT_EQ(train_as<OwnSchedule>(GetParam(), args).logged("learning_rate"), std::vector<double>(6, 0.05));
}

/// Reads other samples than those it was given, with its own batch sizes.
class OwnLoaders final : public Trainer {
 public:
  using Trainer::Trainer;
  DataLoader get_train_dataloader() override { return DataLoader(samples(12), {.batch_size = 2}); }
  DataLoader get_eval_dataloader(std::shared_ptr<const Dataset> /*dataset*/) override {
    return DataLoader(samples(5), {.batch_size = 1});
  }
  DataLoader get_test_dataloader(std::shared_ptr<const Dataset> /*dataset*/) override {
    return DataLoader(samples(7), {.batch_size = 3});
  }
};

/// Reads other samples in evaluations only.
class OwnEvaluationLoader final : public Trainer {
 public:
  using Trainer::Trainer;
  DataLoader get_eval_dataloader(std::shared_ptr<const Dataset> /*dataset*/) override {
    return DataLoader(samples(5), {.batch_size = 1});
  }
};

TEST_P(OverriddenRanks, ReadWhatTheySay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.eval_strategy = IntervalStrategy::epoch;
  const Outcome outcome = train_as<OwnLoaders>(GetParam(), args, {}, [](OwnLoaders& trainer) {
    EXPECT_EQ(trainer.predict(samples(20)).predictions.size(), 7);
    // Five samples in batches of one: three rounds on two ranks.
    const auto values = LogEntry{trainer.evaluate()};
    const double steps = trainer.accelerator().num_processes() == 1 ? 5 : 3;
    EXPECT_NEAR(values.find("eval_samples_per_second").value() / values.find("eval_steps_per_second").value(),
                5 / steps, 1e-3);
  });
  EXPECT_EQ(outcome.output.global_step, 3 * 6 / GetParam());
  EXPECT_EQ(outcome.state.train_batch_size, 2);
  train_as<OwnEvaluationLoader>(GetParam(), args, {}, [](OwnEvaluationLoader& trainer) {
    EXPECT_EQ(trainer.predict(samples(20)).predictions.size(), 5) << "where there is no other for tests";
  });
}

/// Adds a value to everything that is logged.
class OwnLog final : public Trainer {
 public:
  using Trainer::Trainer;
  void log(LogValues values) override {
    values.emplace_back("answer", 42);
    Trainer::log(std::move(values));
  }
};

/// Counts the log entries with that value that callbacks see.
class SeesAnswers final : public TrainerCallback {
 public:
  void on_log(CallbackContext& event) override { answers += LogEntry{event.values}.find("answer") == 42; }
  int answers = 0;
};

TEST(Overrides, LogAsTheySay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  const auto callback = std::make_shared<SeesAnswers>();
  const Outcome outcome = train_as<OwnLog>(1, args, {.model = nullptr, .callbacks = {callback}});
  // Nine of losses, three of evaluations, and the totals.
  EXPECT_EQ(outcome.logged("answer"), std::vector<double>(9 + 3 + 1, 42));
  EXPECT_EQ(callback->answers, 9 + 3 + 1);
}

/// Overrides which parameters have weight decay.
class OwnDecay final : public Trainer {
 public:
  using Trainer::Trainer;
  bool takes_weight_decay(const std::string& name) override { return name == "0.bias"; }
};

TEST(Overrides, DecayAsTheySay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.weight_decay = 0.5;
  OwnDecay trainer(args, overridden_parts());
  const auto optimizer = trainer.create_optimizer();
  ASSERT_EQ(optimizer->param_groups().size(), 2U);
  ASSERT_EQ(optimizer->param_groups()[0].params().size(), 1U);
  EXPECT_TRUE(optimizer->param_groups()[0].params()[0].is_same(trainer.model().parameters()[1].tensor));
}

}  // namespace
}  // namespace lockstep
