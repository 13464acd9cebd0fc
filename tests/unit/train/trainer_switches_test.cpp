// Arguments that change what a training does, each one separately.

#include <torch/nn/modules/embedding.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::arguments;
using testing::Outcome;
using testing::plain_parts;
using testing::samples;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;
using testing::train_plainly;

TEST(Switches, EvaluateInHalfWidthOutsideOfTrainings) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.device = "cpu";
  args.eval_strategy = IntervalStrategy::epoch;
  const Outcome plain = train_plainly(1, args);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    args.bf16_full_eval = type == at::kBFloat16;
    args.fp16_full_eval = type == at::kHalf;
    args.output_dir = folder / at::toString(type);
    EXPECT_EQ(train_plainly(1, args).logged("eval_loss"), plain.logged("eval_loss"));
    Trainer trainer(args, plain_parts());
    const at::Tensor weight = trainer.model().parameters()[0].tensor;
    const at::Tensor before = weight.clone();
    EXPECT_EQ(trainer.predict(samples(7)).predictions["prediction"].scalar_type(), type);
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(weight, before)) << "its own values again";
  }
}

/// Looks up positions that it keeps in a buffer.
struct WithPositionsImpl : torch::nn::Module {
  WithPositionsImpl() {
    positions = register_buffer("position_ids", at::arange(3));
    embedding = register_module("embedding", torch::nn::Embedding(3, 1));
  }
  Batch forward(const Batch& batch) {
    return {{"prediction", (batch["x"] * embedding(positions).reshape({1, 3})).sum(1)}};
  }
  at::Tensor positions;
  torch::nn::Embedding embedding = nullptr;
};
TORCH_MODULE(WithPositions);

TEST(Switches, LeaveIntegersAsTheyAreInHalfWidth) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.bf16_full_eval = true;
  const WithPositions model;
  Trainer trainer(args, {.model = model});
  EXPECT_EQ(trainer.predict(samples(7)).predictions["prediction"].scalar_type(), at::kBFloat16);
  EXPECT_EQ(model->positions.scalar_type(), at::kLong);
  EXPECT_EQ(model->embedding->weight.scalar_type(), at::kFloat);
}

class SwitchedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Switches, SwitchedRanks, ::testing::Values(1, 2));

/// Number of rows that predict() returns.
std::int64_t predicted_rows(int ranks, const TrainingArguments& args) {
  std::int64_t rows = 0;
  testing::run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, plain_parts());
        const auto predictions = trainer.predict(samples(20)).predictions;
        if (accelerator.is_main_process()) rows = predictions.size();
      },
      accelerator_options(args));
  return rows;
}

TEST_P(SwitchedRanks, LimitBatches) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  EXPECT_EQ(train_plainly(GetParam(), args).output.global_step, GetParam() == 1 ? 33 : 18);
  EXPECT_EQ(predicted_rows(GetParam(), args), 20);
  args.limit_train_batches = 2;
  args.limit_eval_batches = 3;
  EXPECT_EQ(train_plainly(GetParam(), args).output.global_step, 3 * 2);
  EXPECT_EQ(predicted_rows(GetParam(), args), 3 * 3 * GetParam());
  args.split_batches = true;
  EXPECT_EQ(train_plainly(GetParam(), args).output.global_step, 3 * 2);
  args.split_batches = false;
  args.fast_dev_run = 1;
  EXPECT_EQ(train_plainly(GetParam(), args).output.global_step, 1);
  EXPECT_EQ(predicted_rows(GetParam(), args), 3 * GetParam());
}

/// Its predictions are on a device from which nothing can be copied to the host.
class FarAway final : public Trainer {
 public:
  using Trainer::Trainer;
  EvaluationStep prediction_step(const Batch& batch, bool /*loss_only*/) override {
    ++steps;
    return {.outputs = {{"far", at::empty({batch.size(), 2}, at::kMeta)}}};
  }
  int steps = 0;
};

TEST(Switches, LeavePredictionsOnTheDeviceForSoManyBatches) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  for (const auto& [batches, expected] : std::vector<std::pair<int, int>>{{0, 1}, {1, 1}, {3, 3}}) {
    args.eval_accumulation_steps = batches;
    FarAway trainer(args, plain_parts());
    EXPECT_THROWS(trainer.predict(samples(20)), c10::Error, "meta");
    EXPECT_EQ(trainer.steps, expected);
  }
}

/// Counts the rows that it gets.
class Counts final : public EvaluationMetrics {
 public:
  void reset() override { rows_ = 0; }
  void update(const Batch& /*outputs*/, const Batch& batch) override { rows_ += batch.size(); }
  LogValues compute(const ProcessGroup& /*group*/) override { return {{"rows", static_cast<double>(rows_)}}; }

 private:
  std::int64_t rows_ = 0;
};

/// Records whether outputs were requested.
class NotesLossOnly final : public Trainer {
 public:
  using Trainer::Trainer;
  EvaluationStep prediction_step(const Batch& batch, bool loss_only) override {
    loss_only_ = loss_only;
    return Trainer::prediction_step(batch, loss_only);
  }
  bool loss_only() const { return loss_only_; }

 private:
  bool loss_only_ = false;
};

TEST(Switches, ComputeTheLossAloneInEvaluations) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  TrainerComponents parts = plain_parts();
  parts.compute_metrics = std::make_shared<Counts>();
  for (const bool of_batches : {true, false}) {
    args.batch_eval_metrics = of_batches;
    args.prediction_loss_only = false;
    NotesLossOnly plain(args, parts);
    EXPECT_EQ(LogEntry{plain.evaluate()}.find("eval_rows"), 13);
    EXPECT_FALSE(plain.loss_only());
    args.prediction_loss_only = true;
    NotesLossOnly trainer(args, parts);
    const LogEntry values{trainer.evaluate()};
    EXPECT_TRUE(values.find("eval_loss"));
    EXPECT_FALSE(values.find("eval_rows"));
    EXPECT_TRUE(trainer.loss_only());
    EXPECT_EQ(trainer.predict(samples(5)).predictions["prediction"].size(0), 5);
    EXPECT_FALSE(trainer.loss_only()) << "predict() is there for the outputs";
  }
}

/// Records the samples of each micro-batch.
class NotesSamples final : public Trainer {
 public:
  using Trainer::Trainer;
  Loss training_step(const Batch& batch) override {
    batches.push_back(batch.indices);
    return Trainer::training_step(batch);
  }
  std::vector<std::vector<std::int64_t>> batches;
};

/// The micro-batches of a run, and its outcome.
std::pair<std::vector<std::vector<std::int64_t>>, TrainOutput> noted(const TrainingArguments& args,
                                                                     std::int64_t stop_at = 0) {
  TrainerComponents parts = plain_parts();
  if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
  NotesSamples trainer(args, parts);
  const auto output = trainer.train();
  return {trainer.batches, output};
}

TEST(Switches, ResumeFromWhereTheyAreTold) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  const auto [whole, all] = noted(args);
  ASSERT_EQ(whole.size(), 33U);
  const auto behind = [&whole = whole](std::size_t step) {
    return std::vector(whole.begin() + static_cast<std::ptrdiff_t>(step), whole.end());
  };
  args.output_dir = folder / "parts";
  EXPECT_TRUE(noted(args, 4).second.preempted);
  EXPECT_TRUE(noted(args, 6).second.preempted);
  const TrainingArguments stopped = args;
  const fs::path out = args.output_dir;
  fs::copy(out, folder / "copy", fs::copy_options::recursive);
  EXPECT_EQ(noted(args).first, behind(6)) << "auto: the newest";
  args = stopped;
  args.output_dir = folder / "other";
  args.resume_from_checkpoint = folder / "copy" / "checkpoint-4";
  EXPECT_EQ(noted(args).first, behind(4)) << "a path";
  args.output_dir = folder / "copy";
  args.resume_from_checkpoint = "never";
  EXPECT_EQ(noted(args).first, whole);
}

TEST(Switches, ResumeWithTheFirstBatchOfTheEpochAgain) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.ignore_data_skip = true;
  args.max_steps = 20;
  const auto first = noted(args, 13).first;
  ASSERT_EQ(first.size(), 13U);
  const auto [second, output] = noted(args);
  EXPECT_EQ(output.global_step, 20);
  ASSERT_EQ(second.size(), 7U);
  EXPECT_EQ(second[0], first[11]) << "an epoch has 11 batches";
  EXPECT_EQ(second[1], first[12]);
}

/// Other data or another seed is another order: its beginning is a place in it, what follows half an epoch of
/// the old one is none.
TEST(Switches, BeginAnEpochOfAnotherOrderAnew) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.max_steps = 20;
  EXPECT_TRUE(noted(args, 13).second.preempted);
  args.data_seed = 99;
  EXPECT_THROWS(noted(args), UsageError, "its seed is", "ignore_data_skip");
  args.ignore_data_skip = true;
  ::testing::internal::CaptureStderr();
  const auto [rest, output] = noted(args);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(testing::contains_all(said, {"loader #1 has another seed (99; it was", "its epoch begins anew"}))
      << said;
  EXPECT_EQ(output.global_step, 20);
  EXPECT_EQ(rest.size(), 7U);
}

TEST(Switches, ResumeWithTheNextEpochWhereOneIsOver) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.ignore_data_skip = true;
  const auto whole = noted(args).first;
  args.output_dir = folder / "parts";
  EXPECT_TRUE(noted(args, 11).second.preempted) << "an epoch has 11 batches";
  EXPECT_EQ(noted(args).first, std::vector(whole.begin() + 11, whole.end()));
}

/// Stops a training after a number of evaluation batches.
class StopInEvaluation final : public TrainerCallback {
 public:
  explicit StopInEvaluation(int batches) : left_(batches) {}
  void on_prediction_step(CallbackContext& event) override {
    if (--left_ == 0) event.trainer.accelerator().request_stop();
  }

 private:
  int left_;
};

TEST(Switches, EvaluateBeforeTheFirstStepOnce) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.eval_on_start = true;
  const auto train = [&](const std::shared_ptr<TrainerCallback>& stops) {
    return train_on(1, args, [&](const Accelerator&) {
      TrainerComponents parts = plain_parts();
      parts.eval_datasets = {{"a", samples(4)}, {"b", samples(13)}};
      if (stops) parts.callbacks.push_back(stops);
      return parts;
    });
  };
  const auto steps_of = [](const Outcome& outcome, const std::string& name) {
    std::vector<std::int64_t> steps;
    for (const auto& entry : outcome.state.log_history) {
      if (entry.find(name)) steps.push_back(entry.step);
    }
    return steps;
  };
  // The first data set has two batches; the signal comes in the second.
  const Outcome first = train(std::make_shared<StopInEvaluation>(3));
  EXPECT_TRUE(first.output.preempted);
  EXPECT_EQ(first.output.global_step, 0);
  EXPECT_TRUE(train(std::make_shared<StopAt>(8)).output.preempted);
  const Outcome last = train(nullptr);
  for (const char* name : {"eval_a_loss", "eval_b_loss"})
    EXPECT_EQ(steps_of(last, name), (std::vector<std::int64_t>{0, 6, 12, 18})) << name;
}

/// What a trainer and its program print on standard error when a loss is infinite, on two ranks of a node.
std::string said(const TrainingArguments& args) {
  ::testing::internal::CaptureStderr();
  testing::run_accelerators(
      2,
      [&](const Accelerator& accelerator) {
        TrainerComponents parts = plain_parts();
        parts.compute_loss = [](const Batch& outputs, const Batch&) -> Loss { return {outputs["loss"] / 0}; };
        Trainer trainer(accelerator, args, parts);
        trainer.logger().log(LogLevel::info, LogFrom::in_order, "by the way");
        trainer.train();
      },
      accelerator_options(args));
  return ::testing::internal::GetCapturedStderr();
}

TEST(Switches, SayWhatTheLevelsLetThrough) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 1;
  args.log_level_replica = "info";
  const std::string all = said(args);
  EXPECT_TRUE(
      testing::contains_all(all, {"INFO [RANK 0] trainer: by", "INFO [RANK 1] trainer: by", "WARNING"}));
  args.log_level = args.log_level_replica = "warning";
  const std::string warnings = said(args);
  EXPECT_TRUE(testing::contains_all(warnings, {"WARNING trainer: 1 of the 1 steps"}));
  EXPECT_EQ(warnings.find("INFO"), std::string::npos) << warnings;
  args.log_level = "error";
  EXPECT_EQ(said(args), "");
}

TEST(Switches, LeaveInfiniteLossesOutOfTheLog) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.max_steps = 2;
  args.max_grad_norm = 0;
  const auto logged = [&](bool filter) {
    args.logging_nan_inf_filter = filter;
    int calls = 0;
    return train_on(1, args,
                    [&](const Accelerator&) {
                      TrainerComponents parts = plain_parts();
                      parts.compute_loss = [&](const Batch& outputs, const Batch&) -> Loss {
                        return {outputs["loss"] * 0 + (calls++ == 0 ? INFINITY : 0.5)};
                      };
                      return parts;
                    })
        .logged("loss");
  };
  EXPECT_EQ(logged(true), std::vector{0.5});
  EXPECT_EQ(logged(false), std::vector{double{INFINITY}});
}

TEST(Switches, TellWhereTheLogsGo) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 2;
  args.report_to = {"jsonl"};
  args.logging_dir = folder / "logs";
  train_plainly(1, args);
  EXPECT_TRUE(fs::exists(folder / "logs" / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(fs::path(args.output_dir) / "runs"));
}

/// An object that cannot be saved; counts how often on_save was called.
class CannotBeWritten final : public TrainerCallback {
 public:
  void on_prepare(CallbackContext& event) override {
    event.trainer.accelerator().register_for_checkpointing("mine", complex_);
  }
  void on_save(CallbackContext& /*event*/) override { ++saves; }
  int saves = 0;

 private:
  struct Complex final : Checkpointable {
    SafeTensors state_dict() const override {
      SafeTensors state;
      state.tensors.emplace("z", at::zeros({1}, at::kComplexDouble));
      return state;
    }
    void load_state_dict(const SafeTensors& /*state*/) override {}
  };

  Complex complex_;
};

TEST(Switches, WriteCheckpointsInAThread) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::epoch;
  for (const bool in_thread : {false, true}) {
    args.async_save = in_thread;
    args.output_dir = folder / (in_thread ? "thread" : "loop");
    const auto callback = std::make_shared<CannotBeWritten>();
    TrainerComponents parts = plain_parts();
    parts.callbacks.push_back(callback);
    Trainer trainer(args, parts);
    EXPECT_THROWS(trainer.train(), Error, "no name for its dtype");
    EXPECT_EQ(callback->saves, in_thread ? 1 : 0) << "the loop went on until the next one";
  }
}

/// Two nodes of one rank each, with separate disks; the checkpoint folders on the second.
std::vector<std::string> on_second_node(TrainingArguments args) {
  const TemporaryFolder folder;
  testing::run_group(2, [&](const ProcessGroup& group) {
    World world;
    world.rank = world.group_rank = group.rank();
    world.world_size = world.group_world_size = group.size();
    TrainingArguments own = args;
    own.output_dir = folder / std::to_string(group.rank());
    fs::create_directories(own.output_dir);
    Trainer(Accelerator(world, group, accelerator_options(own)), own, plain_parts()).train();
  });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "1")) {
    if (fs::exists(entry.path() / "model.safetensors")) names.push_back(entry.path().filename());
  }
  return names;
}

TEST(Switches, SaveOnEachNode) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  for (const bool only_model : {false, true}) {
    args.save_only_model = only_model;
    args.save_on_each_node = false;
    EXPECT_EQ(on_second_node(args), std::vector<std::string>{});
    args.save_on_each_node = true;
    EXPECT_EQ(on_second_node(args), std::vector<std::string>{"checkpoint-2"});
  }
}

/// Sends a signal to the process itself.
class Signals final : public TrainerCallback {
 public:
  explicit Signals(int signal) : signal_(signal) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == 3) ::raise(signal_);
  }

 private:
  int signal_;
};

TEST(Switches, StopAtSigtermOrLeaveItAlone) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const auto before = std::signal(SIGTERM, SIG_IGN);
  const auto step_of_end = [&](int signal, bool stops) {
    args.stop_at_sigterm = stops;
    args.output_dir = folder / (std::to_string(signal) + (stops ? "stops" : "stays"));
    TrainerComponents parts = plain_parts();
    parts.callbacks.push_back(std::make_shared<Signals>(signal));
    return Trainer(args, parts).train().global_step;
  };
  EXPECT_EQ(step_of_end(SIGTERM, true), 3);
  EXPECT_EQ(step_of_end(SIGTERM, false), 18);
  EXPECT_EQ(step_of_end(SIGUSR1, false), 3);
  std::signal(SIGTERM, before);
}

}  // namespace
}  // namespace lockstep
