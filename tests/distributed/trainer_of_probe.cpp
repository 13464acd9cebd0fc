#include "trainer_of_probe.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::testing {
namespace {

/// One line for each event between two steps.
class Events final : public TrainerCallback {
 public:
  Events(const std::string& path, const LostRanks& lost, const ProbeTraining& how)
      : file_(path, std::ios::app), lost_(lost), how_(how) {}
  void on_train_begin(CallbackContext& event) override { write("train begins", event); }
  void on_epoch_begin(CallbackContext& event) override { write("epoch begins", event); }
  void on_step_begin(CallbackContext& /*event*/) override {
    if (how_.max_seconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void on_step_end(CallbackContext& event) override {
    write("step ends", event);
    const std::int64_t step = event.state.global_step;
    Accelerator accelerator = event.trainer.accelerator();
    if (step == how_.pause) event.control.should_save = event.control.should_training_stop = true;
    if (step == how_.stop_at && accelerator.process_index() == 1) accelerator.request_stop();
    if (step == 3) misbehave(event);
    if (event.control.should_training_stop) lost_.after_last_step();
  }
  void on_log(CallbackContext& event) override { write("log", event); }
  void on_evaluate(CallbackContext& event) override { write("evaluation", event); }
  void on_save(CallbackContext& event) override {
    write("checkpoint", event);
    lost_.after_checkpoint(event.state.global_step);
  }
  void on_epoch_end(CallbackContext& event) override { write("epoch ends", event); }
  void on_train_end(CallbackContext& event) override { write("train ends", event); }

 private:
  void misbehave(const CallbackContext& event) {
    const at::NoGradGuard no_grad;
    if (how_.misuse == "communicate") event.trainer.accelerator().reduce(at::ones({1}));
    if (how_.misuse == "rate") event.trainer.optimizer()->param_groups().front().options().set_lr(0.01);
    if (how_.misuse == "weight")
      event.trainer.optimizer()->param_groups().front().params().front().add_(1e-3);
    if (how_.misuse == "draw") at::rand({1});
  }
  void write(const char* what, const CallbackContext& event) {
    file_ << event.state.global_step << ' ' << what << std::endl;
  }
  std::ofstream file_;
  const LostRanks& lost_;
  ProbeTraining how_;
};

std::shared_ptr<const Dataset> samples(std::int64_t count, double phase) {
  const at::Tensor x = at::linspace(-3, 3, count * 6).add(phase).sin().reshape({count, 6});
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", x.sum(1, true).cos()}});
}

TrainingArguments arguments_in(const std::string& folder) {
  TrainingArguments args;
  args.output_dir = folder + "/trainer";
  args.per_device_train_batch_size = 4;
  args.per_device_eval_batch_size = 5;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 4;
  args.learning_rate = 0.02;
  args.logging_steps = 3;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 5;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 10;
  args.save_total_limit = 2;
  args.metric_for_best_model = "loss";
  // No evaluation is better than the first ones: early stopping counts them.
  args.greater_is_better = true;
  args.report_to = {"jsonl"};
  args.disable_tqdm = true;
  return args;
}

}  // namespace

int train_by_trainer(const LossPlan& plan, const ProbeTraining& how) {
  Accelerator accelerator({.device = "cpu"});
  const std::string rank = std::to_string(accelerator.process_index());
  std::ofstream(plan.folder + "/pids." + rank, std::ios::app) << ::getpid() << std::endl;
  const LostRanks lost(plan, accelerator.process_index(), accelerator.num_processes());
  lost.in_set_up();
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16), torch::nn::Tanh(),
                            torch::nn::Dropout(0.3), torch::nn::Linear(16, 1));
  Trainer* running = nullptr;
  auto model = wrap_model(net, [&](auto& module, const Batch& batch) {
    const at::Tensor loss = torch::mse_loss(module(batch["x"]), batch["y"]);
    const std::int64_t step = running->state().global_step;
    if (at::GradMode::is_enabled()) {
      lost.in_step(step, loss);
    } else {
      lost.in_evaluation(step);
    }
    return Batch{{"loss", loss}};
  });
  TrainerComponents parts{
      .model = model,
      .train_dataset = samples(160, 0),
      .eval_dataset = samples(30, 1),
      .callbacks = {std::make_shared<EarlyStoppingCallback>(100),
                    std::make_shared<Events>(plan.folder + "/events." + rank, lost, how)}};
  TrainingArguments args = arguments_in(plan.folder);
  if (how.max_seconds > 0) {
    args.max_duration = Duration(static_cast<double>(how.max_seconds), Duration::Unit::seconds);
    args.lr_scheduler_type = "constant";
  }
  Trainer trainer(accelerator, args, parts);
  running = &trainer;
  if (how.pause > 0) trainer.train();
  return trainer.train().preempted ? kPreemptedExitCode : 0;
}

}  // namespace lockstep::testing
