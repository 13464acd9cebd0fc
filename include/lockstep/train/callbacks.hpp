#pragma once

#include <ATen/core/Tensor.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/checkpointing.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/tracking.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {

/// The second built-in callback. Opens the trackers of args.report_to when training begins, logs to them, and
/// closes them at the end. Names get Hugging Face's groups: "eval/loss" for eval_loss, "test/..." likewise,
/// and "train/loss" for the rest. A resumed training continues the files after the checkpoint's step, so that
/// each step appears once. Only rank 0 writes; on the other ranks the methods do nothing, so all are *Local*.
class TrackerCallback final : public TrainerCallback {
 public:
  /// Closes files that an evaluation before the training opened. *Local*.
  void on_prepare(CallbackContext& event) override;
  /// Opens the files, with the main training arguments as hyper-parameters. Throws Error if they cannot be
  /// opened, UsageError if a tracker's name is unknown.
  void on_train_begin(CallbackContext& event) override;
  /// Writes the values with global_step; opens the files again for an evaluation outside of train(). Throws
  /// Error if writing fails.
  void on_log(CallbackContext& event) override;
  /// Closes the files, also when the training was stopped. Other trackers of the Accelerator stay open.
  void on_train_end(CallbackContext& event) override;

 private:
  void open(CallbackContext& event, bool for_training);

  bool is_open() const { return trackers_ && trackers_->is_open(); }

  std::shared_ptr<RunTrackers> trackers_;
};

/// The command that draws a training with these arguments: "lockstep report out", with the folder that has
/// the files which report_to names, or checkpoints. Empty if there is nothing to draw. If no `lockstep` is on
/// PATH and this process was started by one, the command has its path. *Local*; reads the file system.
std::string report_command(const TrainingArguments& args);

/// Prints each log entry as one line on rank 0's standard output: {'loss': 0.25, 'epoch': 1}.
class PrinterCallback final : public TrainerCallback {
 public:
  /// Prints the values in the order in which they were logged. *Local*.
  void on_log(CallbackContext& event) override;
  /// Prints report_command(), if there is one. *Local*.
  void on_train_end(CallbackContext& event) override;
};

/// A progress bar of the steps on rank 0's standard error (remaining time, steps per second, last loss and
/// learning rate), and the lines of PrinterCallback. The last built-in callback; with args.disable_tqdm,
/// PrinterCallback takes its place.
class ProgressCallback final : public TrainerCallback {
 public:
  /// Starts a bar of max_steps, with the steps of earlier runs as done. No total if the training is limited
  /// by time. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Advances the bar. *Local*.
  void on_step_end(CallbackContext& event) override;
  /// Shows loss, learning rate and the samples per second of all ranks since this run began in the bar, if
  /// there is a loss among the values, and prints the line above it. *Local*.
  void on_log(CallbackContext& event) override;
  /// Ends the bar's line, and prints report_command(), if there is one. *Local*.
  void on_train_end(CallbackContext& event) override;

 private:
  /// Set while a training runs.
  std::optional<ProgressBar> bar_;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t first_sample_ = 0;
};

/// Ends the training before a loss that is not finite changes the weights. The error names the step and the
/// ranks, and is the same on every rank.
class NanGuardCallback final : public TrainerCallback {
 public:
  /// Checks every `every`-th step, 1 or more. Each check waits for the device and gathers one number per
  /// rank. *Local*.
  explicit NanGuardCallback(std::int64_t every = 1) : every_(every) {}

  /// Adds the loss of the micro-batch, without waiting for it. *Local*.
  void on_substep_end(CallbackContext& event) override;
  /// Gathers the ranks' losses of this step. Throws Error on all ranks if one is not finite; the weights are
  /// then those of the previous step. *Collective*.
  void on_pre_optimizer_step(CallbackContext& event) override;

 private:
  void add(const CallbackContext& event);

  std::int64_t every_;
  /// Sum of this rank's losses in this step.
  at::Tensor sum_;
};

/// Records optimizer steps with a Profiler, on every rank. Traces are written below args.output_dir unless
/// `output_trace_dir` is absolute. Steps count from the beginning of this run, resumed or not.
class ProfilerCallback final : public TrainerCallback {
 public:
  /// *Local*, like all of its methods.
  explicit ProfilerCallback(const ProfileOptions& options) : options_(options) {}
  /// Throws UsageError if the schedule records nothing.
  void on_train_begin(CallbackContext& event) override;
  /// Throws Error if a trace cannot be written.
  void on_step_end(CallbackContext& event) override;
  void on_train_end(CallbackContext& event) override;

 private:
  ProfileOptions options_;
  /// Set while a training runs.
  std::unique_ptr<Profiler> profiler_;
};

/// Options of ThroughputCallback.
struct ThroughputOptions {
  /// Tokens per sample, to log tokens per second; 0: not logged.
  double tokens_per_sample = 0;
  /// Peak floating-point operations per second of a device; "mfu" is the fraction of it used, by
  /// Trainer::floating_point_operations (known for text models, and for programs that override it). 0:
  /// peak_flops() of the device in the precision of the training; no mfu if that is unknown.
  double peak_flops_per_device = 0;
};

/// Peak floating-point operations per second, without sparsity, of the CUDA device of this name ("NVIDIA H100
/// 80GB HBM3"); 0 if unknown. `precision` is that of matrix products; with MixedPrecision::no it is float32,
/// or TF32 with `tf32`. The numbers are those of NVIDIA's data sheets. *Local*.
double peak_flops(const std::string& device_name, MixedPrecision precision, bool tf32);

/// At each log, writes to the trackers: throughput/samples_per_second, steps_per_second, tokens_per_second
/// and mfu since the previous log. The time includes evaluations and checkpoints.
class ThroughputCallback final : public TrainerCallback {
 public:
  /// Without options: only samples and steps per second, and mfu if the device's peak is known. *Local*.
  explicit ThroughputCallback(const ThroughputOptions& options = {}) : options_(options) {}
  /// Starts the clock. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Logs the rates of all ranks together and restarts the clock. Does nothing if no step was done since.
  /// *Local*.
  void on_log(CallbackContext& event) override;

 private:
  ThroughputOptions options_;
  /// At the last log: time, steps, samples and operations.
  std::chrono::steady_clock::time_point since_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
  double flops_ = 0;
};

/// At each log, writes to the trackers the peak memory of rank 0's process: memory/peak_rss_mib, and on a
/// CUDA device memory/peak_allocated_mib of LibTorch's allocator.
class MemoryCallback final : public TrainerCallback {
 public:
  /// Logs in MiB (1,048,576 bytes), once per step. *Local*.
  void on_log(CallbackContext& event) override;

 private:
  std::int64_t last_step_ = -1;
};

/// At each log, writes to the trackers the learning rate of each parameter group: lr/group_0 and so on.
class LearningRateMonitor final : public TrainerCallback {
 public:
  /// Logs the rates that the next step will use, once per step; nothing outside of train(). *Local*.
  void on_log(CallbackContext& event) override;

 private:
  std::int64_t last_step_ = -1;
};

/// Keeps an exponential moving average of the weights: those after the first step, and then with weight `1 -
/// decay` those after each step, as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, which does
/// not average buffers either. Averages of float16 and bfloat16 weights are float32, because small steps of
/// the average would be rounded away. They are saved in checkpoints, and the same on every rank, as the
/// weights are.
class EmaCallback final : public TrainerCallback {
 public:
  /// `apply_at_end`: copy the averages into the model when the training has ended. Throws UsageError unless 0
  /// < decay < 1. *Local*.
  explicit EmaCallback(double decay = 0.999, bool apply_at_end = true);

  /// Creates the averages as copies on the model's device, and registers them for checkpoints: the callback
  /// must outlive the training. Throws UsageError for fully sharded models, and for `apply_at_end` together
  /// with load_best_model_at_end. *Local*, but every rank does the same.
  void on_prepare(CallbackContext& event) override;
  /// Until the first step, unless the training was resumed, the averages are the weights. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Adds the new weights to the averages. *Local*.
  void on_optimizer_step(CallbackContext& event) override;
  /// Copies the averages into the model if `apply_at_end` is set. *Local*.
  void on_train_end(CallbackContext& event) override;

  /// The averages, with the shapes and in the order of the model's parameters; empty before the training.
  /// These are the callback's own tensors, which the next step changes. *Local*.
  const std::vector<at::Tensor>& means() const noexcept { return means_.tensors; }

 private:
  /// Named "mean.<number of the parameter>" in checkpoints.
  struct Means final : Checkpointable {
    SafeTensors state_dict() const override;
    void load_state_dict(const SafeTensors& state) override;
    std::vector<at::Tensor> tensors;
  };

  double decay_;
  bool apply_at_end_;
  Means means_;
};

}  // namespace lockstep
