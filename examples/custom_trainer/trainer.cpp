// A custom trainer: a data set, a model, a loss and a callback, on one rank or many.
#include <lockstep/lockstep.hpp>

#include <torch/nn.h>

#include <cmath>
#include <iostream>

using lockstep::Batch;

/// Points of two intertwined spirals, and the spiral of each point. A data set implements two methods.
struct Spirals final : lockstep::Dataset {
  std::int64_t size() const override { return 1024; }
  lockstep::Example get(std::int64_t index, const lockstep::SampleContext&) const override {
    const double turn = 6.0 * static_cast<double>(index / 2) / 512.0 + 0.5;
    const double side = (index % 2 == 0 ? turn : -turn) / 6.5;
    return {{"point", torch::tensor({side * std::cos(turn), side * std::sin(turn)}, torch::kFloat)},
            {"label", torch::tensor(index % 2)}};
  }
};

/// Replaces the model's loss by cross entropy that weights wrong points more.
struct SpiralTrainer final : lockstep::Trainer {
  using Trainer::Trainer;
  lockstep::Loss compute_loss(const Batch& outputs, const Batch& batch) override {
    const auto right = torch::log_softmax(outputs["logits"], 1).gather(1, batch["label"].unsqueeze(1));
    return {.value = -((1 - right.detach().exp()).sqrt() * right).mean(), .weight = {}};
  }
};

/// Ends training when the loss is small enough.
struct GoodEnough final : lockstep::TrainerCallback {
  void on_log(lockstep::CallbackContext& event) override {
    const auto loss = lockstep::LogEntry{event.values}.find("loss");
    if (loss && *loss < 1e-3) event.control.should_training_stop = true;
  }
};

int train(int argc, char** argv) {
  const auto& table = lockstep::training_argument_table();
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) return std::cout << table.help(), 0;
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
  const auto forward = [](auto& model, const Batch& batch) {
    return Batch{{"logits", model(batch["point"])}};
  };
  SpiralTrainer trainer(parsed.options, {.model = lockstep::wrap_model(net, forward),
                                         .train_dataset = std::make_shared<Spirals>(),
                                         .callbacks = {std::make_shared<GoodEnough>()}});
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  trainer.save_model();
  return 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("custom_trainer", [&] { return train(argc, argv); });
}
