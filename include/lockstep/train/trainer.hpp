#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/evaluation_metrics.hpp"
#include "lockstep/train/logger.hpp"
#include "lockstep/train/model_adapter.hpp"
#include "lockstep/train/trainer_callback.hpp"
#include "lockstep/train/trainer_state.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

/// The loss of one micro-batch, in one of two forms.
struct Loss {
  /// A scalar: the mean over the micro-batch, or, with a weight, the sum. Undefined: there is none, as for
  /// samples without labels in an evaluation.
  at::Tensor value = {};
  /// How much the sum weighs: the number of its tokens, for example; a number, or a scalar tensor, which no
  /// step waits for. With it a step's gradient is that of all
  /// sums over all weights, of all ranks and micro-batches (Hugging Face's num_items_in_batch; of this rank's
  /// alone without average_tokens_across_devices); without, of the mean of means.
  std::optional<LossWeight> weight = {};
};

/// What an evaluation computes of one batch.
struct EvaluationStep {
  /// As Trainer::compute_loss says.
  Loss loss = {};
  /// By name; those with as many rows as the batch are collected by predict().
  Batch outputs = {};
};

/// Told to stop in the middle of an evaluation: all ranks throw it after the same batch, through what the
/// program overrides, and Trainer::train() takes it and leaves a checkpoint. Never seen outside of train().
class EvaluationInterrupted final : public Error {
 public:
  EvaluationInterrupted();
};

/// What predict() gives back.
struct PredictionOutput {
  /// The outputs by name, a row for each sample in the order of the data set, on the host, on every rank.
  /// Where batches differ in dimension 1, rows are filled up with -100. `indices` are those of the samples.
  Batch predictions;
  /// test_loss where there is one, the metrics, test_runtime and so on.
  LogValues metrics;
};

/// What a training is made of beside its arguments, under Hugging Face's names; all but the model may be
/// missing.
struct TrainerComponents {
  /// A module with `Batch forward(const Batch&)`, or what wrap_model() makes of any other.
  TrainerModel model = nullptr;
  std::shared_ptr<const Dataset> train_dataset = nullptr;
  /// In its place: a stream, in its own order. One that does not know its length needs max_steps, or
  /// max_duration in steps or time.
  std::shared_ptr<const StreamDataset> train_stream = nullptr;
  /// One, or several by name: then metrics are called eval_<name>_loss and so on.
  std::shared_ptr<const Dataset> eval_dataset = nullptr;
  std::map<std::string, std::shared_ptr<const Dataset>> eval_datasets = {};
  /// In their place: a stream, read from its beginning by every evaluation. Each row counts once, whatever
  /// the ranks get; predict() gives rows in the order of the ranks' batches, without `indices`.
  std::shared_ptr<const StreamDataset> eval_stream = nullptr;
  /// How samples become a batch: see DataLoaderOptions::collate.
  CollateFunction data_collator = nullptr;
  /// The loss of outputs for a batch, in place of the output "loss". As Hugging Face's compute_loss_func,
  /// but the number of items is a part of what it returns: `Loss{sum, number_of_tokens}`.
  std::function<Loss(const Batch& outputs, const Batch& batch)> compute_loss = nullptr;
  /// Makes smaller outputs of outputs before they are collected: classes of logits, for example.
  std::function<Batch(const Batch& outputs, const Batch& batch)> preprocess_logits_for_metrics = nullptr;
  ComputeMetrics compute_metrics = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  /// In place of create_optimizer() and create_scheduler(), on the model's own parameters; either may be
  /// null.
  std::pair<std::shared_ptr<torch::optim::Optimizer>, std::shared_ptr<optim::Scheduler>> optimizers = {};
};

/// The options of an Accelerator that computes as the arguments say. *Local*. Throws UsageError.
AcceleratorOptions accelerator_options(const TrainingArguments& args);

/// The training loop of Hugging Face's Trainer: epochs, accumulation, clipping, schedules, logs, evaluations,
/// checkpoints and going on from them, on one rank or on many.
///
///     lockstep::Trainer trainer({.output_dir = "out", .learning_rate = 1e-3},
///                               {.model = lockstep::wrap_model(net, forward),
///                                .train_dataset = train, .eval_dataset = validation});
///     const auto output = trainer.train();
///     trainer.save_model();
///     return output.preempted ? lockstep::kPreemptedExitCode : 0;
///
/// Programs change it by overriding its virtual methods, under Hugging Face's names, and by callbacks; see
/// docs/trainer.md. It is no template. Not copied. One thread at a time; methods are *Collective* unless
/// noted.
class Trainer {
 public:
  /// Checks the arguments and makes an Accelerator. Throws UsageError for arguments that contradict each
  /// other, before anything starts. *Collective*.
  Trainer(TrainingArguments args, TrainerComponents parts);
  /// On an Accelerator of the program's, made with accelerator_options(args) or options of its own, which
  /// then count for precision and for how data is divided. *Local*, but every rank does the same.
  Trainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- What a program calls

  /// Trains from where the arguments say. Throws UsageError without a model or training data, DataError for a
  /// checkpoint that does not fit, and what callbacks, data and model throw.
  TrainOutput train();

  /// Evaluates, logs the metrics and returns them: `<prefix>_loss`, those of TrainerComponents::metrics,
  /// `<prefix>_runtime`, `_samples_per_second` and `_steps_per_second`. The loss is the sum over all samples
  /// (or all weights) by their number, whatever the batch size and the number of ranks. Without a data set:
  /// of those, or of the stream, that the trainer has. Inside of train(), between two steps, a signal to stop
  /// is noticed between two batches: see EvaluationInterrupted.
  virtual LogValues evaluate(std::shared_ptr<const Dataset> dataset = nullptr,
                             const std::string& prefix = "eval");

  /// The names of all that evaluate() returns with this prefix, where they are known beforehand: train() ends
  /// with a UsageError before its first step when metric_for_best_model is none of them. The default knows
  /// them when there is no TrainerComponents::compute_metrics, or when it knows its names. Nothing: only the
  /// first evaluation tells, and ends the training there. A program whose evaluate() returns more names that
  /// here. *Local*.
  virtual std::vector<std::string> metric_names(const std::string& prefix) const;

  /// The model's outputs for all samples, and metrics as evaluate() has them; logs nothing.
  virtual PredictionOutput predict(std::shared_ptr<const Dataset> dataset,
                                   const std::string& prefix = "test");

  /// Writes model.safetensors into `folder`, by default the output_dir.
  virtual void save_model(const std::filesystem::path& folder = {});

  /// Writes trainer_state.json into the output_dir, as it is now.
  void save_state();
  /// Writes the metrics as `output_dir`/<split>_results.json, and puts them over those in all_results.json:
  /// `save_metrics("eval", trainer.evaluate())`.
  void save_metrics(const std::string& split, const LogValues& metrics);

  /// Adds epoch and step to the values, keeps them in the state's log_history and calls on_log. *Local*, but
  /// every rank does the same.
  virtual void log(LogValues values);

  /// After the others. *Local*, but every rank does the same.
  void add_callback(std::shared_ptr<TrainerCallback> callback);
  /// Takes one away that was added, or that the library brought. *Local*.
  void remove_callback(const TrainerCallback& callback);
  /// In the order in which they are called. *Local*.
  const std::vector<std::shared_ptr<TrainerCallback>>& callbacks() const noexcept;

  /// All of these are *Local*.
  const Accelerator& accelerator() const noexcept;
  Accelerator& accelerator() noexcept;
  const TrainingArguments& args() const noexcept;
  const TrainerState& state() const noexcept;
  TrainerControl& control() noexcept;
  ModelAdapter& model() noexcept;
  /// Of the train() that is under way or was the last; null before.
  torch::optim::Optimizer* optimizer() noexcept;
  optim::Scheduler* scheduler() noexcept;
  /// The loss of this rank's last micro-batch, detached; undefined before the first.
  const Loss& last_loss() const noexcept;
  /// For messages of the program's own: at the level that log_level, or log_level_replica, gives this rank.
  const Logger& logger() const noexcept;

  // ---- What a program overrides

  /// The loss of the model's outputs for a batch. The default: TrainerComponents::compute_loss; cross entropy
  /// of "logits" and "labels" with label_smoothing_factor; the outputs "loss_sum" and "loss_weight"; the
  /// output "loss"; or none. *Local*.
  virtual Loss compute_loss(const Batch& outputs, const Batch& batch);

  /// Forward and backward of one micro-batch, inside Accelerator::accumulate. Returns the loss, for the log.
  virtual Loss training_step(const Batch& batch);

  /// What an evaluation computes of a batch, without gradients. *Local*: ranks may have different numbers of
  /// batches. `loss_only`: outputs are not needed.
  virtual EvaluationStep prediction_step(const Batch& batch, bool loss_only);

  /// Loaders of whole data sets; the trainer divides them among the ranks, in training as the Accelerator
  /// says, in evaluations without repeating a sample. *Local*.
  virtual DataLoader get_train_dataloader();
  /// `dataset`: null for TrainerComponents::eval_stream.
  virtual DataLoader get_eval_dataloader(std::shared_ptr<const Dataset> dataset);
  /// For predict(); by default as for evaluate().
  virtual DataLoader get_test_dataloader(std::shared_ptr<const Dataset> dataset);

  /// The optimizer of args().optim on the model's parameters, in two groups by takes_weight_decay(). Called
  /// on every rank at the same point, after the model has been wrapped, so that one's own may be a
  /// ZeroRedundancyOptimizer.
  virtual std::unique_ptr<torch::optim::Optimizer> create_optimizer();
  /// The schedule of the arguments. Its step() is called after each optimizer step,
  /// step(metric) with each evaluation's metric_for_best_model; null: the rates stay. *Local*.
  virtual std::unique_ptr<optim::Scheduler> create_scheduler(torch::optim::Optimizer& optimizer,
                                                             std::int64_t training_steps,
                                                             std::int64_t warmup_steps);
  /// Whether weight decay is meant for the parameter of this name: see optim::takes_weight_decay(); layer
  /// norms are known by their type too. *Local*.
  virtual bool takes_weight_decay(const std::string& name);

  /// Of forward and backward of a micro-batch of this rank; total_flos is their sum over all ranks, and the
  /// MFU of ThroughputCallback is made of it. The default is transformers': 6 for each element of
  /// "input_ids", padding too, and each parameter, trained or not, that is no embedding's weight; 0 for
  /// samples without "input_ids", whose operations only the program knows. *Local*.
  virtual double floating_point_operations(const Batch& batch);

 private:
  friend class TrainingRun;
  friend class EvaluationRun;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
