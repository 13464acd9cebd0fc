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
  /// A scalar: the mean over the micro-batch, or, with a weight, the sum. Undefined if there is none, as for
  /// samples without labels in an evaluation.
  at::Tensor value = {};
  /// The weight of the sum, for example its number of tokens: a number, or a scalar tensor, which no step
  /// waits for. With a weight, a step's gradient is that of the sum of all losses divided by the sum of all
  /// weights, over all ranks and micro-batches (Hugging Face's num_items_in_batch; without
  /// average_tokens_across_devices, this rank's weights only). Without a weight, it is that of the mean of
  /// means.
  std::optional<LossWeight> weight = {};
};

/// The result of an evaluation for one batch.
struct EvaluationStep {
  /// As in Trainer::compute_loss.
  Loss loss = {};
  /// By name; predict() collects those with as many rows as the batch.
  Batch outputs = {};
};

/// Thrown on all ranks after the same batch if the job is told to stop during an evaluation. It passes
/// through the program's overrides; Trainer::train() catches it and writes a checkpoint. Never thrown outside
/// of train().
class EvaluationInterrupted final : public Error {
 public:
  EvaluationInterrupted();
};

/// The result of predict().
struct PredictionOutput {
  /// The outputs by name, one row per sample in the order of the data set, on the host, on every rank. If
  /// batches differ in dimension 1, rows are padded with -100 (unsigned integers become signed), Booleans
  /// with false. `indices` are those of the samples.
  Batch predictions;
  /// test_loss if there is one, the metrics, test_runtime and so on.
  LogValues metrics;
};

/// The parts of a training besides its arguments, with Hugging Face's names. All but the model are optional.
struct TrainerComponents {
  /// A module with `Batch forward(const Batch&)`, or the result of wrap_model() for any other module.
  TrainerModel model = nullptr;
  std::shared_ptr<const Dataset> train_dataset = nullptr;
  /// A stream instead, in its own order. If it does not know its length, it needs max_steps, or max_duration
  /// in steps or time.
  std::shared_ptr<const StreamDataset> train_stream = nullptr;
  /// One, or several by name: metrics are then called eval_<name>_loss and so on.
  std::shared_ptr<const Dataset> eval_dataset = nullptr;
  std::map<std::string, std::shared_ptr<const Dataset>> eval_datasets = {};
  /// A stream instead, which every evaluation reads from its beginning. Each row counts once, whatever the
  /// ranks get. predict() returns rows in the order of the ranks' batches, without `indices`.
  std::shared_ptr<const StreamDataset> eval_stream = nullptr;
  /// Builds a batch from samples: see DataLoaderOptions::collate.
  CollateFunction data_collator = nullptr;
  /// Computes the loss of the outputs for a batch, instead of the output "loss". As Hugging Face's
  /// compute_loss_func, but the number of items is part of its result: `Loss{sum, number_of_tokens}`.
  std::function<Loss(const Batch& outputs, const Batch& batch)> compute_loss = nullptr;
  /// For label_smoothing_factor, which computes the loss from "logits" and "labels": whether the logits of a
  /// token predict the label after it, as those of causal language models do (true), or its own label
  /// (false). Must be set if there are logits per token; transformers knows it by the model's class.
  std::optional<bool> shift_labels = std::nullopt;
  /// Reduces outputs before they are collected, for example logits to classes.
  std::function<Batch(const Batch& outputs, const Batch& batch)> preprocess_logits_for_metrics = nullptr;
  ComputeMetrics compute_metrics = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  /// Used instead of create_optimizer() and create_scheduler(), on the model's own parameters; either may be
  /// null.
  std::pair<std::shared_ptr<torch::optim::Optimizer>, std::shared_ptr<optim::Scheduler>> optimizers = {};
};

/// The Accelerator options that the arguments define. *Local*. Throws UsageError.
AcceleratorOptions accelerator_options(const TrainingArguments& args);

/// The training loop of Hugging Face's Trainer: epochs, accumulation, clipping, schedules, logging,
/// evaluation, checkpoints and resuming, on one rank or on many.
///
///     lockstep::Trainer trainer({.output_dir = "out", .learning_rate = 1e-3},
///                               {.model = lockstep::wrap_model(net, forward),
///                                .train_dataset = train, .eval_dataset = validation});
///     const auto output = trainer.train();
///     trainer.save_model();
///     return output.preempted ? lockstep::kPreemptedExitCode : 0;
///
/// Programs customize it by overriding its virtual methods, which have Hugging Face's names, and by
/// callbacks; see docs/trainer.md. It is not a template. Not copyable. One thread at a time; methods are
/// *Collective* unless noted.
class Trainer {
 public:
  /// Checks the arguments and creates an Accelerator. Throws UsageError if arguments contradict each other,
  /// before anything starts. *Collective*.
  Trainer(TrainingArguments args, TrainerComponents parts);
  /// Uses an existing Accelerator, created with accelerator_options(args) or with other options, which then
  /// determine precision and sharding. *Local*, but every rank does the same.
  Trainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- Called by programs

  /// Trains from the checkpoint or the beginning, as the arguments say. Throws UsageError if model or
  /// training data are missing, DataError if a checkpoint does not fit, and what callbacks, data and model
  /// throw.
  TrainOutput train();

  /// Evaluates, logs the metrics and returns them: `<prefix>_loss`, those of
  /// TrainerComponents::compute_metrics, `<prefix>_runtime`, `_samples_per_second` and `_steps_per_second`.
  /// The loss is the sum over all samples (or weights) divided by their number, whatever the batch size and
  /// the number of ranks. Without a data set: evaluates those, or the stream, of the trainer. Leaves the
  /// model in evaluation mode, except inside train(). There, between two steps, a stop request takes effect
  /// between two batches: see EvaluationInterrupted.
  virtual LogValues evaluate(std::shared_ptr<const Dataset> dataset = nullptr,
                             const std::string& prefix = "eval");

  /// The names of all values that evaluate() returns with this prefix, if they are known in advance: train()
  /// throws UsageError before its first step if metric_for_best_model is not one of them. The default knows
  /// them if there is no TrainerComponents::compute_metrics, or if that knows its names. Empty: unknown until
  /// the first evaluation, which then ends the training. Override it if your evaluate() returns more names.
  /// *Local*.
  virtual std::vector<std::string> metric_names(const std::string& prefix) const;

  /// The model's outputs for all samples, and the metrics as in evaluate(); logs nothing. Outputs that do not
  /// have as many rows as the batch are left out. Samples without labels have neither loss nor metrics: see
  /// TrainingArguments::label_names.
  virtual PredictionOutput predict(std::shared_ptr<const Dataset> dataset,
                                   const std::string& prefix = "test");

  /// Writes model.safetensors to `folder`, by default the output_dir.
  virtual void save_model(const std::filesystem::path& folder = {});

  /// Writes the current trainer_state.json to the output_dir.
  void save_state();
  /// Writes the metrics to `output_dir`/<split>_results.json, and merges them into all_results.json:
  /// `save_metrics("eval", trainer.evaluate())`.
  void save_metrics(const std::string& split, const LogValues& metrics);

  /// Adds epoch and step to the values, appends them to the state's log_history and calls on_log. *Local*,
  /// but every rank does the same.
  virtual void log(LogValues values);

  /// Appends a callback. *Local*, but every rank does the same.
  void add_callback(std::shared_ptr<TrainerCallback> callback);
  /// Removes a callback, which may be a built-in one. *Local*.
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
  /// Of the current or the last train(); null before.
  torch::optim::Optimizer* optimizer() noexcept;
  optim::Scheduler* scheduler() noexcept;
  /// The loss of this rank's last micro-batch, detached; undefined before the first.
  const Loss& last_loss() const noexcept;
  /// A logger for messages of the program, at the level that log_level or log_level_replica sets for this
  /// rank.
  const Logger& logger() const noexcept;

  // ---- Overridden by programs

  /// The loss of the model's outputs for a batch. The default is the first available of:
  /// TrainerComponents::compute_loss; cross entropy of "logits" and "labels" with label_smoothing_factor, if
  /// the model does not compute that itself (ModelAdapter::set_label_smoothing); the outputs "loss_sum" and
  /// "loss_weight"; the output "loss"; none. *Local*. Throws UsageError if label_smoothing_factor is set, and
  /// a loss of the model is without it.
  virtual Loss compute_loss(const Batch& outputs, const Batch& batch);

  /// Forward and backward of one micro-batch, inside Accelerator::accumulate. Returns the loss to be logged.
  virtual Loss training_step(const Batch& batch);

  /// Evaluates one batch, without gradients; without its loss if it has no labels (see
  /// TrainingArguments::label_names). *Local*: ranks may have different numbers of batches.
  /// `loss_only`: outputs are not needed.
  virtual EvaluationStep prediction_step(const Batch& batch, bool loss_only);

  /// Loaders of whole data sets. The trainer shards them: for training as the Accelerator's options say, for
  /// evaluation without repeating a sample. *Local*.
  virtual DataLoader get_train_dataloader();
  /// `dataset`: null for TrainerComponents::eval_stream.
  virtual DataLoader get_eval_dataloader(std::shared_ptr<const Dataset> dataset);
  /// For predict(); by default the same as for evaluate().
  virtual DataLoader get_test_dataloader(std::shared_ptr<const Dataset> dataset);

  /// The optimizer args().optim for the model's parameters, in two groups by takes_weight_decay(). Called on
  /// every rank at the same point, after the model was wrapped, so that an override may return a
  /// ZeroRedundancyOptimizer.
  virtual std::unique_ptr<torch::optim::Optimizer> create_optimizer();
  /// The schedule of the arguments. Its step() is called after each optimizer step, and step(metric) after
  /// each evaluation with metric_for_best_model, by default the loss. Null: constant learning rates. *Local*.
  virtual std::unique_ptr<optim::Scheduler> create_scheduler(torch::optim::Optimizer& optimizer,
                                                             std::int64_t training_steps,
                                                             std::int64_t warmup_steps);
  /// Whether weight decay applies to the parameter of this name: see optim::takes_weight_decay(). Layer norms
  /// are also recognized by their type. *Local*.
  virtual bool takes_weight_decay(const std::string& name);

  /// Floating-point operations of forward and backward of a micro-batch of this rank. total_flos is their sum
  /// over all ranks, from which ThroughputCallback computes the MFU. The default is transformers': 6 per
  /// element of "input_ids", including padding, and per parameter, trained or not, that is not an embedding's
  /// weight; 0 for samples without "input_ids", whose operations only the program knows. *Local*.
  virtual double floating_point_operations(const Batch& batch);

 private:
  friend class TrainingRun;
  friend class EvaluationRun;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
