// Trainings whose steps are recorded as graphs, by a tape that stands for CUDA: they end as usual ones do.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/callbacks.hpp"
#include "support/graph_tape.hpp"
#include "support/throws.hpp"
#include "unit/train/recorded_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_alike;
using testing::expect_same_training;
using testing::GraphTape;
using testing::kSteps;
using testing::long_arguments;
using testing::Outcome;
using testing::outcome_of;
using testing::Parts;
using testing::plain;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using testing::train_recorded;
using testing::Training;

/// 11 batches an epoch: the last window of an epoch is shorter with 2 and with 3 micro-batches, and with 45
/// samples its last batch has one row.
TEST(RecordedTraining, HasTheLossesOfAUsualOne) {
  for (const std::int64_t accumulation : {1, 2, 3}) {
    for (const std::int64_t count : {44, 45}) {
      SCOPED_TRACE(accumulation * 100 + count);
      const TemporaryFolder folder;
      TrainingArguments args = long_arguments(folder);
      args.gradient_accumulation_steps = accumulation;
      const Training recorded = expect_same_training(args, [&] {
        return TrainerComponents{.model = small_model(true), .train_dataset = samples(count)};
      });
      EXPECT_GT(recorded.replays, static_cast<int>(kSteps)) << recorded.log;
      EXPECT_LE(recorded.recordings, 12);
      EXPECT_EQ(recorded.log.find("not recorded"), std::string::npos) << recorded.log;
    }
  }
}

/// Sums over rows, and their number as a tensor.
TrainerComponents weighted() {
  TrainerComponents parts = plain();
  parts.compute_loss = [](const Batch& outputs, const Batch& batch) {
    const at::Tensor weights = batch["x"].select(1, 0).abs().add(0.1);
    return Loss{((outputs["prediction"] - batch["y"]).square().squeeze(1) * weights).sum(), weights.sum()};
  };
  return parts;
}

TEST(RecordedTraining, DividesByTheWeightsOfAWindow) {
  for (const std::int64_t accumulation : {1, 2, 3}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.gradient_accumulation_steps = accumulation;
    const Training recorded = expect_same_training(args, weighted);
    EXPECT_GT(recorded.replays, static_cast<int>(kSteps)) << recorded.log;
  }
}

TEST(RecordedTraining, UsesEachOptimizer) {
  for (const char* const name : {"adam", "adamw_torch", "sgd", "rmsprop", "adagrad"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.optim = name;
    args.sgd_momentum = 0.5;
    args.learning_rate = 0.01;
    const Training recorded = expect_same_training(args, [] { return plain(); });
    const bool is_ours = args.optim[0] == 's' || args.optim.starts_with("adam");
    EXPECT_EQ(recorded.log.find("the optimizer's step is not recorded") == std::string::npos, is_ours);
    EXPECT_GT(recorded.replays, static_cast<int>(kSteps));
  }
}

/// Rows of different lengths, of which the model sees the mean.
std::shared_ptr<const Dataset> rows_of_lengths(std::int64_t lengths) {
  class Rows final : public Dataset {
   public:
    explicit Rows(std::int64_t lengths) : lengths_(lengths) {}
    std::int64_t size() const override { return 4 * lengths_; }
    Example get(std::int64_t index, const SampleContext&) const override {
      const std::int64_t length = 1 + index / 4;
      const at::Tensor x =
          at::linspace(-1, 1, 3 * length).reshape({length, 3}) * (0.3 + 0.1 * static_cast<double>(index % 7));
      return {{"rows", x}, {"y", x.mean(0).sum().sin().reshape({1})}};
    }

   private:
    std::int64_t lengths_;
  };
  return std::make_shared<Rows>(lengths);
}

TrainerComponents of_lengths(std::int64_t lengths) {
  torch::nn::Linear net(3, 1);
  const torch::NoGradGuard no_grad;
  net->weight.copy_(at::tensor({0.5, -0.25, 1.0}).reshape({1, 3}));
  net->bias.zero_();
  return {
      .model = wrap_model(net,
                          [](auto& model, const Batch& batch) {
                            return Batch{{"loss", torch::mse_loss(model(batch["rows"].mean(1)), batch["y"])}};
                          }),
      .train_dataset = rows_of_lengths(lengths)};
}

TEST(RecordedTraining, RecordsEightShapes) {
  for (const std::int64_t lengths : {3, 11}) {
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(lengths * 10 + accumulation);
      const TemporaryFolder folder;
      TrainingArguments args = long_arguments(folder);
      args.max_steps = 120;
      args.gradient_accumulation_steps = accumulation;
      args.train_sampling_strategy = SamplingStrategy::sequential;
      const Training recorded = expect_same_training(args, [&] { return of_lengths(lengths); });
      EXPECT_GT(recorded.replays, 60);
      EXPECT_EQ(recorded.log.find("more than 8 shapes") != std::string::npos, lengths > 8) << recorded.log;
    }
  }
}

/// A model that reads a value on the host.
std::shared_ptr<ModelAdapter> waiting_model() {
  torch::nn::Linear net(3, 1);
  const torch::NoGradGuard no_grad;
  net->weight.fill_(0.5);
  net->bias.zero_();
  return wrap_model(net, [](auto& model, const Batch& batch) {
    const at::Tensor prediction = at::dropout(model(batch["x"]), 0.5, true);
    const at::Tensor loss = torch::mse_loss(prediction, batch["y"]);
    return Batch{{"loss", loss.item<double>() > 1e9 ? loss * 0 : loss}};
  });
}

TEST(RecordedTraining, GoesOnWhereARecordingFails) {
  for (const std::int64_t accumulation : {1, 2}) {
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.gradient_accumulation_steps = accumulation;
    const Parts parts = [] {
      return TrainerComponents{.model = waiting_model(), .train_dataset = samples(44)};
    };
    const Training recorded = expect_same_training(args, parts, 0);
    EXPECT_EQ(recorded.replays, 0);
    EXPECT_NE(recorded.log.find("cuda_graphs: steps are not recorded. It must not wait for the device"),
              std::string::npos)
        << recorded.log;
    EXPECT_EQ(recorded.log.find("not recorded"), recorded.log.rfind("not recorded")) << "said once";
    args.cuda_graphs = CudaGraphs::on;
    args.output_dir += "/on";
    EXPECT_THROWS(train_recorded(args, parts), UsageError, "cuda_graphs is on",
                  "It must not wait for the device");
  }
}

/// Wherever in the step a recording fails, the step is made once.
TEST(RecordedTraining, MakesAStepOnceIfItsRecordingFails) {
  for (const int number : {0, 3, 9, 14, 20, 30}) {
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(number * 10 + accumulation);
      struct Failing final : TrainerCallback {
        explicit Failing(int the_number) : number(the_number) {}
        void on_step_begin(CallbackContext& event) override {
          auto& tape = dynamic_cast<GraphTape&>(*comm::GraphRecorder::of(at::kCPU));
          if (event.state.global_step == 6 + number % 7) tape.fails_at = number;
        }
        int number;
      };
      const TemporaryFolder folder;
      TrainingArguments args = long_arguments(folder);
      args.max_steps = 25;
      args.gradient_accumulation_steps = accumulation;
      const auto parts = [&] {
        TrainerComponents made = weighted();
        made.callbacks = {std::make_shared<Failing>(number)};
        return made;
      };
      expect_same_training(args, parts);
    }
  }
}

/// Does something after a step.
class After final : public TrainerCallback {
 public:
  After(std::int64_t step, std::function<void(CallbackContext&)> action)
      : step_(step), action_(std::move(action)) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == step_) action_(event);
  }

 private:
  std::int64_t step_;
  std::function<void(CallbackContext&)> action_;
};

Parts with(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks, bool dropout = false) {
  return [=] {
    TrainerComponents parts = plain(dropout);
    parts.callbacks = callbacks;
    return parts;
  };
}

/// Whose state was replaced, as when one is loaded.
TEST(RecordedTraining, RecordsAnewWithAnotherStateOfTheOptimizer) {
  for (const std::int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.gradient_accumulation_steps = accumulation;
    const auto replace = std::make_shared<After>(20, [](CallbackContext& event) {
      for (auto& [parameter, state] : event.trainer.optimizer()->state()) {
        auto& adam = static_cast<torch::optim::AdamParamState&>(*state);
        adam.exp_avg(adam.exp_avg().clone().mul_(0.5));
        adam.exp_avg_sq(adam.exp_avg_sq().clone().mul_(1.5));
        adam.step(adam.step() + 3);
      }
    });
    const Training recorded = expect_same_training(args, with({replace}));
    EXPECT_GT(recorded.replays, 40);
  }
}

TEST(RecordedTraining, FollowsChangesOfTheModelAndTheOptimizer) {
  const std::vector<std::function<void(CallbackContext&)>> changes = {
      [](CallbackContext& event) { event.trainer.model().parameters()[0].tensor.requires_grad_(false); },
      [](CallbackContext& event) {
        const auto parameter = event.trainer.model().parameters()[1].tensor;
        parameter.set_data(parameter.detach().clone().mul_(1.5));
      },
      [](CallbackContext& event) {
        const at::NoGradGuard no_grad;
        event.trainer.model().parameters()[0].tensor.mul_(0.5);
      },
      [](CallbackContext& event) {
        for (auto& group : event.trainer.optimizer()->param_groups())
          dynamic_cast<optim::GroupOptions<optim::AdamWOptions>&>(group.options()).values.weight_decay = 0.7;
      },
      [](CallbackContext& event) { event.trainer.model().train(false); },
      [](CallbackContext& event) { event.trainer.accelerator().set_gradient_accumulation_steps(3); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(i * 10 + static_cast<std::size_t>(accumulation));
      const TemporaryFolder folder;
      TrainingArguments args = long_arguments(folder);
      args.gradient_accumulation_steps = accumulation;
      const Training recorded =
          expect_same_training(args, with({std::make_shared<After>(21, changes[i])}, /*dropout=*/true));
      EXPECT_GT(recorded.replays, 60);
    }
  }
}

/// Reads gradients, and changes them.
TEST(RecordedTraining, ShowsCallbacksTheGradients) {
  struct Noisy final : TrainerCallback {
    void on_pre_optimizer_step(CallbackContext& event) override {
      const at::NoGradGuard no_grad;
      for (const auto& entry : event.trainer.model().parameters()) {
        sum += entry.tensor.grad().abs().sum().item<double>();
        entry.tensor.grad().mul_(0.5).add_(0.01);
      }
    }
    double sum = 0;
  };
  for (const std::int64_t accumulation : {1, 2}) {
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.gradient_accumulation_steps = accumulation;
    std::vector<std::shared_ptr<Noisy>> made;
    expect_same_training(args, [&] {
      made.push_back(std::make_shared<Noisy>());
      return with({made.back()})();
    });
    ASSERT_EQ(made.size(), 2U);
    EXPECT_GT(made[0]->sum, 0);
    EXPECT_NEAR(made[0]->sum, made[1]->sum, 1e-3);
  }
}

TEST(RecordedTraining, RunsWithMovingAveragesEvaluationsAndCheckpoints) {
  const TemporaryFolder folder;
  TrainingArguments args = long_arguments(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 7;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 9;
  const Training recorded = expect_same_training(
      args,
      with({std::make_shared<EmaCallback>(0.9), std::make_shared<NanGuardCallback>(5)}, /*dropout=*/true));
  EXPECT_GT(recorded.replays, 60);
}

/// A training that is stopped and resumed ends as one that was not.
TEST(RecordedTraining, Resumes) {
  const TemporaryFolder folder;
  TrainingArguments args = long_arguments(folder);
  const Training whole = train_recorded(args, with({}, /*dropout=*/true));
  args.output_dir += "/again";
  const Training first =
      train_recorded(args, with({std::make_shared<testing::StopAt>(23)}, /*dropout=*/true));
  EXPECT_TRUE(first.outcome.output.preempted);
  const Training second = train_recorded(args, with({}, /*dropout=*/true));
  EXPECT_GT(second.replays, 20);
  expect_alike(second.outcome, whole.outcome);
}

/// One branch is used by batches that have a key.
struct BranchesImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& rows, bool both) { return both ? one(rows) + two(rows) : one(rows); }
  torch::nn::Linear one = register_module("one", torch::nn::Linear(3, 1));
  torch::nn::Linear two = register_module("two", torch::nn::Linear(3, 1));
};
TORCH_MODULE(Branches);

/// A parameter without a gradient in a window is not stepped, and does not decay.
TEST(RecordedTraining, LeavesParametersThatAWindowDoesNotUse) {
  for (const std::int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.max_steps = 80;
    args.gradient_accumulation_steps = accumulation;
    const auto parts = [] {
      Branches net;
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(0.25);
      auto model = wrap_model(net, [](auto& wrapped, const Batch& batch) {
        const at::Tensor prediction = wrapped(batch["x"], batch.contains("both"));
        return Batch{{"loss", torch::mse_loss(prediction, batch["y"])}};
      });
      TrainerComponents made{.model = model, .train_dataset = samples(44)};
      made.data_collator = [count = 0](std::vector<Example> examples) mutable {
        Batch batch = default_collate(std::move(examples));
        if (++count % 5 < 3) batch.set("both", at::ones({batch.size()}));
        return batch;
      };
      return made;
    };
    const Training recorded = expect_same_training(args, parts);
    EXPECT_GT(recorded.replays, 60);
  }
}

/// A tensor of the program that each step replaces by another.
TEST(RecordedTraining, NoticesStateThatMoves) {
  const TemporaryFolder folder;
  const TrainingArguments args = long_arguments(folder);
  const auto parts = [] {
    TrainerComponents made = plain();
    made.compute_loss = [total = at::ones({})](const Batch& outputs, const Batch&) mutable {
      total = total + outputs["loss"].detach();
      return Loss{outputs["loss"] * total.rsqrt()};
    };
    return made;
  };
  const Training recorded = expect_same_training(args, parts, 0);
  EXPECT_EQ(recorded.recordings, 0);
  EXPECT_NE(recorded.log.find("do not do the same operations"), std::string::npos) << recorded.log;
}

/// The loss has weights of its own, which only the optimizer knows.
TEST(RecordedTraining, TrainsParametersOfTheLoss) {
  for (const std::int64_t accumulation : {1, 2}) {
    const TemporaryFolder folder;
    TrainingArguments args = long_arguments(folder);
    args.gradient_accumulation_steps = accumulation;
    std::vector<at::Tensor> scales;
    const auto parts = [&] {
      TrainerComponents made = plain();
      const at::Tensor scale = at::ones({}).requires_grad_();
      scales.push_back(scale);
      made.compute_loss = [scale](const Batch& outputs, const Batch&) {
        return Loss{outputs["loss"] * scale.exp() - scale};
      };
      std::vector<at::Tensor> all{scale};
      for (const auto& entry : made.model->parameters()) all.push_back(entry.tensor);
      made.optimizers.first = std::make_shared<optim::AdamW>(all, optim::AdamWOptions{.lr = 0.02});
      return made;
    };
    const Training recorded = expect_same_training(args, parts);
    EXPECT_GT(recorded.replays, 60) << recorded.log;
    ASSERT_EQ(scales.size(), 2U);
    EXPECT_TRUE(at::allclose(scales[0], scales[1], 1e-5, 1e-5));
    EXPECT_NE(scales[0].item<double>(), 1);
  }
}

/// A replay that does something else is noticed at once, and the usual step stands.
TEST(RecordedTraining, ComparesTheFirstReplay) {
  for (const char* const operation :
       {"aten::tanh", "aten::tanh_backward", "aten::bernoulli_", "aten::_fused_adamw_"}) {
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(std::string(operation) + " " + std::to_string(accumulation));
      const TemporaryFolder folder;
      TrainingArguments args = long_arguments(folder);
      args.gradient_accumulation_steps = accumulation;
      args.cuda_graphs = CudaGraphs::off;
      args.output_dir += "/usual";
      const Parts parts = with({}, /*dropout=*/true);
      const Outcome usual = train_recorded(args, parts).outcome;
      args.cuda_graphs = CudaGraphs::automatic;
      args.output_dir += "/recorded";
      const Training recorded = train_recorded(args, parts, operation);
      expect_alike(recorded.outcome, usual);
      EXPECT_LE(recorded.replays, 40);
      EXPECT_NE(recorded.log.find("differs from the usual step"), std::string::npos) << recorded.log;
    }
  }
}

/// The host decides by a counter of its own, which a replay would not see.
TEST(RecordedTraining, NoticesStepsThatDoNotDoTheSame) {
  const TemporaryFolder folder;
  const TrainingArguments args = long_arguments(folder);
  const auto parts = [] {
    TrainerComponents made = plain();
    made.compute_loss = [count = 0](const Batch& outputs, const Batch&) mutable {
      return Loss{outputs["loss"] * (1.0 + 0.01 * ++count)};
    };
    return made;
  };
  const Training recorded = expect_same_training(args, parts, 0);
  EXPECT_EQ(recorded.recordings, 0);
  EXPECT_NE(recorded.log.find("do not do the same operations"), std::string::npos) << recorded.log;
}

}  // namespace
}  // namespace lockstep
