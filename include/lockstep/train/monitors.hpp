#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/train/checkpointable.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {

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

/// What is needed to say more than samples a second.
struct ThroughputOptions {
  /// Tokens in a sample, for tokens a second; 0: not told.
  double tokens_per_sample = 0;
  /// What a device can do at best, in floating-point operations a second: then "mfu" is the share of it that
  /// Trainer::floating_point_operations says was used: known for text models, and where the program overrides
  /// it. 0: not told.
  double peak_flops_per_device = 0;
};

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
class EmaCallback final : public TrainerCallback, public Checkpointable {
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
  const std::vector<at::Tensor>& means() const noexcept { return means_; }

  /// The means as "mean.<number of the parameter>"; shares them. *Local*.
  SafeTensors checkpoint_state() const override;
  /// Copies them back. *Local*. Throws DataError for those of another model.
  void load_checkpoint_state(const SafeTensors& state) override;

 private:
  double decay_;
  bool apply_at_end_;
  std::vector<at::Tensor> means_;
};

}  // namespace lockstep
