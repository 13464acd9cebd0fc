#pragma once

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"

// A training that takes milliseconds, for tests of the training loop.
namespace lockstep::testing {

inline std::shared_ptr<const Dataset> samples(std::int64_t count) {
  const at::Tensor x = at::linspace(-1, 1, count * 3).reshape({count, 3});
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", x.sum(1, true).sin()}});
}

/// Equal weights on all ranks, which are threads that share one generator.
inline std::shared_ptr<ModelAdapter> small_model(bool dropout = false) {
  torch::nn::Sequential net(torch::nn::Linear(3, 8), torch::nn::Tanh(),
                            torch::nn::Dropout(dropout ? 0.5 : 0.0), torch::nn::Linear(8, 1));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters())
    parameter.copy_(at::linspace(-0.6, 0.7, parameter.numel()).reshape(parameter.sizes()));
  return wrap_model(net, [](auto& model, const Batch& batch) {
    const at::Tensor prediction = model(batch["x"]);
    return Batch{{"loss", torch::mse_loss(prediction, batch["y"])}, {"prediction", prediction}};
  });
}

inline TrainingArguments arguments(const TemporaryFolder& folder) {
  TrainingArguments args;
  args.output_dir = folder / "out";
  args.per_device_train_batch_size = 4;
  args.per_device_eval_batch_size = 3;
  args.gradient_accumulation_steps = 2;
  args.learning_rate = 0.05;
  args.num_train_epochs = 3;
  args.logging_steps = 2;
  args.save_strategy = SaveStrategy::no;
  args.disable_tqdm = true;
  return args;
}

/// Tells the process to stop after a step, like a scheduler's signal.
class StopAt final : public TrainerCallback {
 public:
  explicit StopAt(std::int64_t step) : step_(step) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == step_) event.trainer.accelerator().request_stop();
  }

 private:
  std::int64_t step_;
};

/// The result of a training.
struct Outcome {
  TrainOutput output;
  TrainerState state;
  std::vector<at::Tensor> weights;

  /// The values of that name in the log, in order.
  std::vector<double> logged(const std::string& name) const {
    std::vector<double> values;
    for (const auto& entry : state.log_history) {
      if (const auto value = entry.find(name)) values.push_back(*value);
    }
    return values;
  }
};

/// The outcome of a training on this rank.
inline Outcome outcome_of(Trainer& trainer, const TrainOutput& output) {
  Outcome outcome{output, trainer.state(), {}};
  for (const auto& entry : trainer.model().parameters())
    outcome.weights.push_back(entry.tensor.detach().clone());
  return outcome;
}

inline Outcome train_on(int ranks, const TrainingArguments& args,
                        const std::function<TrainerComponents(const Accelerator&)>& parts) {
  Outcome outcome;
  run_accelerators(
      ranks,
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, parts(accelerator));
        const TrainOutput output = trainer.train();
        if (accelerator.is_main_process()) outcome = outcome_of(trainer, output);
      },
      accelerator_options(args));
  return outcome;
}

inline TrainerComponents plain_parts() {
  return {.model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(13)};
}

/// Trains plain_parts(), with a signal after step `stop_at` if it is not 0.
inline Outcome train_plainly(int ranks, const TrainingArguments& args, std::int64_t stop_at = 0) {
  return train_on(ranks, args, [&](const Accelerator&) {
    TrainerComponents parts = plain_parts();
    if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
    return parts;
  });
}

inline void expect_same(const Outcome& one, const Outcome& other) {
  EXPECT_EQ(one.logged("loss"), other.logged("loss"));
  ASSERT_EQ(one.weights.size(), other.weights.size());
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    EXPECT_TRUE(at::equal(one.weights[i], other.weights[i])) << "parameter " << i;
}

}  // namespace lockstep::testing
