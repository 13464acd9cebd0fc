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
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {

/// The library's own second callback: opens the trackers of args.report_to when a training begins, gives them
/// what is logged, and closes them at its end. Names get a group as Hugging Face gives them: "eval/loss" for
/// eval_loss, "test/..." likewise, and "train/loss" for the rest. A training that goes on continues the files
/// after its checkpoint's step, so that each step is there once. Rank 0's process writes; elsewhere every
/// method is a call that does nothing, so all are *Local*.
class TrackerCallback final : public TrainerCallback {
 public:
  /// Closes files that an evaluation before the training opened. *Local*.
  void on_prepare(CallbackContext& event) override;
  /// Opens the files, with the arguments by which a run is judged as hyper-parameters. Throws Error where
  /// they cannot be opened, UsageError for a tracker of an unknown name.
  void on_train_begin(CallbackContext& event) override;
  /// Writes the values with global_step; opens the files again for an evaluation outside of a training.
  /// Throws Error where writing fails.
  void on_log(CallbackContext& event) override;
  /// Closes them, after a training that was told to stop too.
  void on_train_end(CallbackContext& event) override;

 private:
  void open(CallbackContext& event, bool for_training);

  bool is_open_ = false;
};

/// Prints what is logged, a line each, on rank 0's standard output: {'loss': 0.25, 'epoch': 1}.
class PrinterCallback final : public TrainerCallback {
 public:
  /// Prints the values in the order in which they were logged. *Local*.
  void on_log(CallbackContext& event) override;
};

/// A progress bar over the steps on rank 0's standard error: time left, steps a second, the last loss and
/// learning rate; and the lines of PrinterCallback. The last of the library's own, unless
/// args.disable_tqdm is set: then PrinterCallback is.
class ProgressCallback final : public TrainerCallback {
 public:
  /// Begins a bar of max_steps, with the steps of earlier runs as done; a training that ends by the clock has
  /// no total. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Another step, and the samples a second of all ranks since the training began, behind what was logged.
  /// *Local*.
  void on_step_end(CallbackContext& event) override;
  /// Shows loss and learning rate in the bar, where they are among the values, and prints the line above it.
  /// *Local*.
  void on_log(CallbackContext& event) override;
  /// Ends the bar's line. *Local*.
  void on_train_end(CallbackContext& event) override;

 private:
  /// While a training runs.
  std::optional<ProgressBar> bar_;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t first_step_ = 0;
  bool has_logged_ = false;
};

/// Ends the training before a loss that is not finite has spoiled the weights: the error names the step and
/// the ranks, the same on every rank.
class NanGuardCallback final : public TrainerCallback {
 public:
  /// Looks at every `every`-th step, 1 or more: each look waits for the device, and is one small exchange.
  /// *Local*.
  explicit NanGuardCallback(std::int64_t every = 1) : every_(every) {}

  /// Remembers the loss of the micro-batch, without waiting for it. *Local*.
  void on_substep_end(CallbackContext& event) override;
  /// Gathers the ranks' losses of this step, and throws Error on all ranks where one is not finite; the
  /// weights are still those of the step before. *Collective*.
  void on_pre_optimizer_step(CallbackContext& event) override;

 private:
  void add(const CallbackContext& event);

  std::int64_t every_;
  /// Of this rank's losses in this step.
  at::Tensor sum_;
};

/// Records optimizer steps with a Profiler, on every rank; the traces go below args.output_dir unless
/// `output_trace_dir` is absolute. Steps count from the beginning of this run, resumed or not.
class ProfilerCallback final : public TrainerCallback {
 public:
  /// *Local*, and so are all of its methods.
  explicit ProfilerCallback(const ProfileOptions& options) : options_(options) {}
  /// Throws UsageError for a schedule that records nothing.
  void on_train_begin(CallbackContext& event) override;
  /// Throws Error where a trace cannot be written.
  void on_step_end(CallbackContext& event) override;
  void on_train_end(CallbackContext& event) override;

 private:
  ProfileOptions options_;
  /// While a training runs.
  std::unique_ptr<Profiler> profiler_;
};

/// What is needed to say more than samples a second.
struct ThroughputOptions {
  /// Tokens in a sample, for tokens a second; 0: not told.
  double tokens_per_sample = 0;
  /// What a device can do at best, in floating-point operations a second: then "mfu" is the share of it that
  /// Trainer::floating_point_operations says was used: known for text models, and where the program overrides
  /// it. 0: peak_flops() of the device, in the precision of the training; no mfu where that is not known.
  double peak_flops_per_device = 0;
};

/// What a CUDA device of this name ("NVIDIA H100 80GB HBM3") can do at best, in floating-point operations a
/// second, without sparsity; 0: not known. `precision` is that of the products; with MixedPrecision::no they
/// are float32's own, or TF32's with `tf32`. The numbers are those of NVIDIA's data sheets. *Local*.
double peak_flops(const std::string& device_name, MixedPrecision precision, bool tf32);

/// Logs to the trackers, whenever something is logged: throughput/samples_per_second, steps_per_second,
/// tokens_per_second and mfu since the last time. Evaluations and checkpoints count as time.
class ThroughputCallback final : public TrainerCallback {
 public:
  /// Without options: samples and steps alone. *Local*.
  explicit ThroughputCallback(const ThroughputOptions& options = {}) : options_(options) {}
  /// The clock begins. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Logs the rates of all ranks together, each a number a second, and begins the clock anew; nothing where
  /// no step was done since. *Local*.
  void on_log(CallbackContext& event) override;

 private:
  ThroughputOptions options_;
  /// The last log: when, and what had been done.
  std::chrono::steady_clock::time_point since_;
  std::int64_t step_ = 0;
  double flops_ = 0;
};

/// Logs to the trackers, whenever something is logged, the largest memory that rank 0's process has had so
/// far: memory/peak_rss_mib, and on a CUDA device memory/peak_allocated_mib of LibTorch's allocator.
class MemoryCallback final : public TrainerCallback {
 public:
  /// Logs MiB of 1,048,576 bytes, once a step. *Local*.
  void on_log(CallbackContext& event) override;

 private:
  std::int64_t last_step_ = -1;
};

/// Logs to the trackers, whenever something is logged, each parameter group's learning rate: lr/group_0 and
/// so on.
class LearningRateMonitor final : public TrainerCallback {
 public:
  /// Logs the rates that the next step will use, once a step; nothing outside of a training. *Local*.
  void on_log(CallbackContext& event) override;

 private:
  std::int64_t last_step_ = -1;
};

/// Keeps a mean of the weights over the steps, in which a step weighs `1 - decay` and earlier ones less and
/// less: torch.optim.swa_utils.get_ema_multi_avg_fn. The means are part of the checkpoints. On every rank the
/// same, as the weights are.
class EmaCallback final : public TrainerCallback {
 public:
  /// `apply_at_end`: the model has the means when the training has ended. Throws UsageError for a decay that
  /// is not between 0 and 1, both excluded. *Local*.
  explicit EmaCallback(double decay = 0.999, bool apply_at_end = true);

  /// Makes the means, as copies on the model's device, and registers them for checkpoints: the callback must
  /// live as long as the training. *Local*, but every rank does the same.
  void on_prepare(CallbackContext& event) override;
  /// In a run from scratch, the means begin as the weights. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Adds the new weights to the means. *Local*.
  void on_optimizer_step(CallbackContext& event) override;
  /// Copies the means into the model, where that is asked for. *Local*.
  void on_train_end(CallbackContext& event) override;

  /// The means, of the parameters' shapes and in the order of the model's parameters; empty before the
  /// training. The callback's own tensors: the next step changes them. *Local*.
  const std::vector<at::Tensor>& means() const noexcept { return means_.tensors; }

 private:
  /// In checkpoints "mean.<number of the parameter>".
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
