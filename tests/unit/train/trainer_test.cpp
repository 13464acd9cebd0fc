#include <cmath>
#include <filesystem>

#include "lockstep/core/error.hpp"
#include "lockstep/train/callbacks.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;

/// Threads share LibTorch's generator: with dropout, only a single rank draws the same numbers twice.
Outcome train_once(int ranks, const TrainingArguments& args, std::int64_t stop_at, std::int64_t count) {
  return train_on(ranks, args, [&](const Accelerator&) {
    const bool dropout = ranks == 1 && args.global_batch_size == 0;
    TrainerComponents parts{.model = small_model(dropout), .train_dataset = samples(count)};
    if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
    return parts;
  });
}

/// Compares an uninterrupted training with one that is stopped after `stop_at` steps and resumed.
void check_resume(int ranks, std::int64_t stop_at) {
  const TemporaryFolder folder;
  TrainingArguments whole = arguments(folder);
  TrainingArguments parts = whole;
  parts.output_dir = folder / "parts";
  const Outcome wanted = train_once(ranks, whole, 0, /*count=*/44);
  const Outcome stopped = train_once(ranks, parts, stop_at, /*count=*/44);
  const Outcome resumed = train_once(ranks, parts, 0, /*count=*/44);
  EXPECT_FALSE(wanted.output.preempted);
  EXPECT_TRUE(stopped.output.preempted);
  EXPECT_LT(stopped.output.global_step, wanted.output.global_step);
  EXPECT_EQ(resumed.output.global_step, wanted.output.global_step);
  expect_same(wanted, resumed);
}

TEST(Trainer, ResumesInTheMiddleOfAnEpochBitForBit) {
  check_resume(1, 8);
  check_resume(2, 5);
}
TEST(Trainer, ResumesFromTheEndOfAnEpochBitForBit) {
  check_resume(1, 12);
  check_resume(2, 6);
}

/// The same samples per step, on one rank or on two: the same weights, except for the order of sums.
TEST(Trainer, KeepsTheGlobalBatchOnAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  const auto run = [&](int ranks, const std::string& name, std::int64_t stop) {
    TrainingArguments args = arguments(folder);
    args.output_dir = folder / name;
    args.gradient_accumulation_steps = 1;
    args.global_batch_size = 8;
    return train_once(ranks, args, stop, /*count=*/48);
  };
  const Outcome whole = run(1, "whole", 0);
  EXPECT_TRUE(run(2, "changed", 8).output.preempted);
  const Outcome changed = run(1, "changed", 0);
  EXPECT_EQ(changed.output.global_step, whole.output.global_step);
  for (std::size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_TRUE(at::allclose(changed.weights[i], whole.weights[i], 1e-4, 1e-6)) << "parameter " << i;
}

/// The loss and the predictions of 23 samples, evaluated on `ranks` ranks with this batch size.
std::pair<double, at::Tensor> evaluated(int ranks, std::int64_t batch_size) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.per_device_eval_batch_size = batch_size;
  std::pair<double, at::Tensor> result;
  testing::run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, {.model = small_model(false), .eval_dataset = samples(23)});
        const LogValues metrics = trainer.evaluate();
        const PredictionOutput output = trainer.predict(samples(23));
        if (accelerator.process_index() != ranks - 1) return;
        result = {LogEntry{metrics}.find("eval_loss").value(), output.predictions["prediction"]};
        EXPECT_NEAR(LogEntry{output.metrics}.find("test_loss").value(), result.first, 1e-12);
      },
      accelerator_options(args));
  return result;
}

TEST(Trainer, EvaluatesTheSameWhateverTheRanksAndTheBatch) {
  const auto [loss, predictions] = evaluated(1, 23);
  EXPECT_EQ(predictions.size(0), 23);
  for (const auto& [ranks, batch] : std::vector<std::pair<int, int>>{{1, 4}, {2, 4}, {3, 1}, {3, 16}}) {
    const auto [other_loss, other_predictions] = evaluated(ranks, batch);
    EXPECT_NEAR(other_loss, loss, 1e-6) << ranks << " ranks, batches of " << batch;
    EXPECT_TRUE(at::allclose(other_predictions, predictions)) << ranks << " ranks, batches of " << batch;
  }
}

TEST(Trainer, NamesTheStepAndTheRankOfALossThatIsNotFinite) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  const at::Tensor x = at::ones({16, 3});
  at::Tensor y = at::zeros({16, 1});
  y[12] = std::nan("");  // Of the fourth batch: that of rank 1 in the second step.
  const auto data = std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", y}});
  args.train_sampling_strategy = SamplingStrategy::sequential;
  const auto train = [&](const Accelerator& accelerator) {
    Trainer trainer(accelerator, args, {.model = small_model(false), .train_dataset = data});
    trainer.add_callback(std::make_shared<NanGuardCallback>());
    EXPECT_THROWS(trainer.train(), Error, "step 2", "rank(s) 1 ", "not finite");
    EXPECT_EQ(trainer.state().global_step, 1);
  };
  testing::run_accelerators(2, train, accelerator_options(args));
}

TEST(Trainer, ProfilesStepsByNumber) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const ProfileOptions options = {.schedule_option = {.skip_first = 1, .warmup = 1, .active = 2}};
  const Accelerator accelerator(World::single(), ProcessGroup(0, 1, Store::in_memory()),
                                accelerator_options(args));
  Trainer trainer(accelerator, args,
                  {.model = small_model(true),
                   .train_dataset = samples(44),
                   .callbacks = {std::make_shared<ProfilerCallback>(options)}});
  trainer.train();
  EXPECT_GT(trainer.state().global_step, 4);
  EXPECT_TRUE(
      std::filesystem::exists(std::filesystem::path(args.output_dir) / "profile" / "rank_0.3.pt.trace.json"));
}

/// The first parameter's mean as AveragedModel computes it.
struct ExpectedMean final : TrainerCallback {
  void on_optimizer_step(CallbackContext& event) override {
    const at::Tensor weights = event.trainer.model().parameters()[0].tensor.detach();
    mean = mean.defined() ? mean.lerp(weights, 1 - 0.9) : weights.clone();
  }
  at::Tensor mean;
};

TEST(Trainer, AveragesWeightsAndKeepsTheMeanInCheckpoints) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const auto expected = std::make_shared<ExpectedMean>();
  const auto run = [&](std::int64_t stop) {
    const auto ema = std::make_shared<EmaCallback>(0.9, /*apply_at_end=*/false);
    const Accelerator accelerator(World::single(), ProcessGroup(0, 1, Store::in_memory()),
                                  accelerator_options(args));
    TrainerComponents parts{
        .model = small_model(true), .train_dataset = samples(44), .callbacks = {ema, expected}};
    if (stop > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop));
    Trainer trainer(accelerator, args, parts);
    trainer.train();
    EXPECT_FALSE(at::allclose(ema->means()[0], trainer.model().parameters()[0].tensor, 1e-3, 1e-3));
    return ema->means();
  };
  args.output_dir = folder / "whole";
  const auto whole = run(0);
  EXPECT_TRUE(at::equal(whole[0], expected->mean));
  args.output_dir = folder / "parts";
  run(7);
  const auto parts = run(0);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(whole[i], parts[i])) << i;
}

TEST(Trainer, SavesWeightsAloneAndAWholeCheckpointWhenStopped) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_only_model = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  args.save_total_limit = 2;
  const auto run = [&](std::int64_t stop) { return train_once(1, args, stop, /*count=*/44).output; };
  EXPECT_TRUE(run(8).preempted);
  const fs::path out = args.output_dir;
  EXPECT_FALSE(fs::exists(out / "checkpoint-4"));
  EXPECT_FALSE(fs::exists(out / "checkpoint-6/optimizer.json"));
  EXPECT_TRUE(fs::exists(out / "checkpoint-6/model.safetensors"));
  EXPECT_TRUE(fs::exists(out / "checkpoint-6/trainer_state.json"));
  EXPECT_TRUE(fs::exists(out / "checkpoint-8/optimizer.json")) << "this one can be resumed from";
  EXPECT_EQ(run(0).global_step, 18);
}

TEST(Trainer, TrainsAgainWithMoreEpochs) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::epoch;
  args.lr_scheduler_type = "constant";
  const auto log_size_after = [&](double epochs) {
    args.num_train_epochs = epochs;
    Trainer trainer(args, {.model = small_model(false), .train_dataset = samples(44)});
    EXPECT_EQ(trainer.train().global_step, static_cast<std::int64_t>(6 * epochs));
    const TrainOutput again = trainer.train();
    EXPECT_EQ(again.training_loss, 0) << "there is nothing left to do";
    trainer.save_metrics("train", again.metrics);
    EXPECT_TRUE(fs::exists(fs::path(args.output_dir) / "train_results.json"));
    return trainer.state().log_history.size();
  };
  const std::size_t after_one = log_size_after(1);
  EXPECT_LT(after_one, log_size_after(3));
}

TEST(Trainer, RefusesWhatIsMissing) {
  const TemporaryFolder folder;
  const Accelerator accelerator(World::single(), ProcessGroup(0, 1, Store::in_memory()));
  EXPECT_THROWS(Trainer(accelerator, arguments(folder), {}), UsageError, "there is no model");
  Trainer trainer(accelerator, arguments(folder), {.model = small_model(false)});
  EXPECT_THROWS(trainer.train(), UsageError, "no training data set");
  EXPECT_THROWS(trainer.evaluate(), UsageError, "nothing to evaluate on");
}

/// Begins again where save_only_model has left nothing to resume from.
TEST(Trainer, StartsOverInAFolderWithOnlyWeights) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_only_model = true;
  args.save_strategy = SaveStrategy::epoch;
  EXPECT_EQ(train_once(1, args, 0, /*count=*/44).output.global_step, 18);
  ::testing::internal::CaptureStderr();
  args.num_train_epochs = 4;
  const Outcome again = train_once(1, args, 0, /*count=*/44);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(testing::contains_all(said, {"starts over", "checkpoint-", "save_only_model"})) << said;
  EXPECT_EQ(again.output.global_step, 24);
  EXPECT_EQ(again.state.log_history.front().step, 2);
  fs::remove(fs::path(args.output_dir) / "checkpoint-6/model.safetensors");
  EXPECT_THROWS(train_once(1, args, 0, /*count=*/44), DataError, "checkpoint-6", "manifest.json");
}

/// A run that begins anew has lower steps than the weights that it finds.
TEST(Trainer, KeepsTheWeightsThatItWroteLast) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_only_model = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2, args.save_total_limit = 1;
  const fs::path out = args.output_dir;
  for (const std::int64_t steps : {6, 4}) {
    args.max_steps = steps;
    train_once(1, args, 0, /*count=*/44);
    EXPECT_TRUE(fs::exists(out / checkpoint_name(steps))) << steps;
  }
  EXPECT_FALSE(fs::exists(out / "checkpoint-6"));
}

TEST(Trainer, DoesNotReplaceTheBestModelByTheAverage) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  const auto train = [&](bool apply_at_end) {
    TrainerComponents parts{.model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(5)};
    parts.callbacks = {std::make_shared<EmaCallback>(0.9, apply_at_end)};
    return Trainer(args, parts).train().global_step;
  };
  EXPECT_THROWS(train(true), UsageError, "EmaCallback", "load_best_model_at_end");
  EXPECT_EQ(train(false), 18);
}

/// The last batch of an epoch is not full, and on two ranks one of them repeats samples.
TEST(Trainer, CountsEachSampleOnceInItsRates) {
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    TrainingArguments args = arguments(folder);
    args.per_device_train_batch_size = 64;
    args.gradient_accumulation_steps = 1;
    args.num_train_epochs = 50;
    const Outcome outcome = train_once(ranks, args, 0, /*count=*/10);
    EXPECT_EQ(outcome.state.num_samples_seen, 500);
    const LogEntry speed{outcome.output.metrics};
    EXPECT_NEAR(*speed.find("train_samples_per_second") / *speed.find("train_steps_per_second"), 10, 0.1);
  }
}

/// State under a name, as JSON or not.
class Stateful final : public TrainerCallback {
 public:
  explicit Stateful(std::string begin) : state(std::move(begin)) {}
  std::string name() const override { return "mine"; }
  std::string state_dict() const override { return state; }
  void load_state_dict(const std::string& saved) override { state = saved; }
  std::string state;
};

TEST(Trainer, SavesTheStatesOfCallbacks) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::epoch;
  const auto train = [&](const std::vector<std::string>& states) {
    TrainerComponents parts{.model = small_model(), .train_dataset = samples(44)};
    std::vector<std::shared_ptr<Stateful>> mine;
    for (const auto& state : states) mine.push_back(std::make_shared<Stateful>(state));
    parts.callbacks.assign(mine.begin(), mine.end());
    Trainer(args, parts).train();
    std::vector<std::string> after;
    for (const auto& callback : mine) after.push_back(callback->state);
    return after;
  };
  EXPECT_THROWS(train({"count: 3"}), UsageError, "'mine'", "JSON");
  train({"1", R"({"a":2})"});
  EXPECT_EQ(train({"0", "0"}), (std::vector<std::string>{"1", R"({"a":2})"}));
  EXPECT_THROWS(train({"0", "0", "0"}), DataError, "'mine'", "3 states");
}

/// Ends the first epoch at a step, or after the first micro-batch of the next one.
class EndsEpoch final : public TrainerCallback {
 public:
  EndsEpoch(std::int64_t step, bool later) : step_(step), later_(later) {}
  void on_step_begin(CallbackContext& /*event*/) override { ++begun; }
  void on_step_end(CallbackContext& event) override {
    if (!later_ && event.state.global_step == step_) event.control.should_epoch_stop = true;
  }
  void on_substep_end(CallbackContext& event) override {
    if (later_ && event.state.global_step == step_)
      event.control.should_epoch_stop = !std::exchange(done_, true);
  }
  int begun = 0;

 private:
  std::int64_t step_;
  bool later_;
  bool done_ = false;
};

/// In bfloat16, a thousandth of a small change would always be rounded away.
TEST(Trainer, AveragesHalfWideWeightsInFloat) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.learning_rate = 0.5;
  torch::nn::Linear net(3, 1);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(1);
  }
  net->to(at::kBFloat16);
  const auto ema = std::make_shared<EmaCallback>(0.999, /*apply_at_end=*/false);
  train_on(1, args, [&](const Accelerator&) {
    TrainerComponents parts{.train_dataset = samples(44)};
    parts.model = wrap_model(net, [](auto& model, const Batch& batch) {
      const at::Tensor prediction = model(batch["x"].to(at::kBFloat16)).to(at::kFloat);
      return Batch{{"loss", torch::mse_loss(prediction, batch["y"])}};
    });
    parts.callbacks = {ema};
    return parts;
  });
  const at::Tensor mean = ema->means().front(), weight = net->weight.detach().to(at::kFloat);
  EXPECT_EQ(mean.scalar_type(), at::kFloat);
  EXPECT_TRUE(mean.ne(mean.to(at::kBFloat16).to(at::kFloat)).any().item<bool>()) << mean;
  EXPECT_TRUE(mean.ne(weight).all().item<bool>());
}

TEST(Trainer, DiscardsAStepThatTheEpochEndsIn) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 12;
  args.logging_steps = 1;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  const auto train = [&](bool later, int begun) {
    const auto ends = std::make_shared<EndsEpoch>(3, later);
    const Outcome outcome = train_on(1, args, [&](const Accelerator&) {
      return TrainerComponents{.model = small_model(), .train_dataset = samples(44), .callbacks = {ends}};
    });
    EXPECT_EQ(ends->begun, begun);
    return outcome;
  };
  expect_same(train(false, 12), train(true, 13));
}

class Throws final : public TrainerCallback {
 public:
  explicit Throws(std::int64_t step = 1) : step_(step) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == step_) throw Error("enough");
  }

 private:
  std::int64_t step_;
};

/// The last checkpoint is that of the step after which the epoch ends.
TEST(Trainer, EndsAnEpochThatIsCutShortAfterAKill) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.num_train_epochs = 2;
  args.save_steps = 3;
  const auto train = [&](const char* name, std::int64_t killed_at) {
    args.output_dir = folder / name;
    return train_on(1, args, [&](const Accelerator&) {
      return TrainerComponents{.model = small_model(),
                               .train_dataset = samples(44),
                               .callbacks = {std::make_shared<EndsEpoch>(3, /*later=*/false),
                                             std::make_shared<Throws>(killed_at)}};
    });
  };
  const Outcome whole = train("whole", 100);
  EXPECT_EQ(whole.output.global_step, 3 + 6);
  EXPECT_THROWS(train("parts", 4), Error, "enough");
  expect_same(whole, train("parts", 100));
}

TEST(Trainer, CountsAnEpochThatIsCutShort) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.num_train_epochs = 2;
  args.save_strategy = SaveStrategy::epoch;
  const auto train = [&] {
    return train_on(1, args, [&](const Accelerator&) {
      return TrainerComponents{.model = small_model(),
                               .train_dataset = samples(44),
                               .callbacks = {std::make_shared<EndsEpoch>(3, /*later=*/false)}};
    });
  };
  const Outcome outcome = train();
  EXPECT_EQ(outcome.output.global_step, 3 + 6);
  EXPECT_EQ(outcome.state.epoch, 2);
  EXPECT_EQ(train().output.global_step, 3 + 6) << "already finished";
}

TEST(Trainer, IsNotInATrainingAnyMoreAfterAnException) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.bf16_full_eval = true;
  Trainer trainer(
      args,
      {.model = small_model(), .train_dataset = samples(44), .callbacks = {std::make_shared<Throws>()}});
  EXPECT_THROWS(trainer.train(), Error, "enough");
  EXPECT_EQ(trainer.predict(samples(4)).predictions["prediction"].scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace lockstep
