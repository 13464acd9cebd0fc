#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::optim {

/// The factor of the learning rate after `step` optimizer steps.
using Schedule = std::function<double(std::int64_t step)>;

/// A schedule of transformers' `get_scheduler` and its parameters, named as in transformers' functions and
/// Trainer's `lr_scheduler_kwargs`. Steps are optimizer steps, whatever the number of ranks and of
/// micro-batches.
struct ScheduleOptions {
  /// "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "cosine_with_min_lr",
  /// "cosine_warmup_with_min_lr", "polynomial", "inverse_sqrt" or "warmup_stable_decay".
  std::string name = "linear";
  /// Steps in which the rate increases from 0 to its full value.
  std::int64_t num_warmup_steps = 0;
  /// Steps of the whole training. Not needed for the constant schedules and inverse_sqrt.
  std::int64_t num_training_steps = 0;
  /// Cosine schedules and warmup_stable_decay: number of cosine waves during the decay. Default 0.5, half a
  /// wave down to 0; for cosine_with_restarts 1.
  std::optional<double> num_cycles = {};
  /// cosine_with_min_lr, cosine_warmup_with_min_lr: the lowest rate, or the same as a fraction of the full
  /// rate. Set at most one of them; 0 by default.
  std::optional<double> min_lr = {};
  std::optional<double> min_lr_rate = {};
  /// cosine_warmup_with_min_lr: the fraction of the full rate at which the warm-up begins.
  std::optional<double> warmup_lr_rate = {};
  /// polynomial: the final rate, and the power of the decay.
  double lr_end = 1e-7;
  double power = 1;
  /// inverse_sqrt: by default num_warmup_steps, or 10,000 without a warm-up.
  std::optional<std::int64_t> timescale = {};
  /// warmup_stable_decay: steps of decay, and of the full rate before it (by default the rest of
  /// num_training_steps).
  std::int64_t num_decay_steps = 0;
  std::optional<std::int64_t> num_stable_steps = {};
  /// warmup_stable_decay: the lowest rate as a fraction of the full rate; "linear", "cosine" or "1-sqrt" for
  /// warm-up and decay.
  double min_lr_ratio = 0;
  std::string warmup_type = "linear";
  std::string decay_type = "cosine";
};

/// The schedule with the values of transformers' `get_scheduler`. `lr` is the full rate, relative to which
/// min_lr and lr_end are taken. *Local*. Throws UsageError if the name is unknown or a value is out of range.
Schedule make_schedule(const ScheduleOptions& options, double lr = 1);

/// When to lower the learning rate because a metric has stopped improving. Names, defaults and meaning as in
/// torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauOptions {
  /// "min": lower is better; "max": higher is better.
  std::string mode = "min";
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  /// "rel" or "abs".
  std::string threshold_mode = "rel";
  std::int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

/// The rule of ReduceLrOnPlateau. *Local*.
class PlateauRule {
 public:
  /// Throws UsageError if an option is out of range.
  explicit PlateauRule(const PlateauOptions& options = {});

  /// Returns true if the rate must be lowered now.
  bool step(double metric);

  const PlateauOptions& options() const noexcept { return options_; }

  /// State of the rule.
  double best = 0;
  std::int64_t bad_epochs = 0;
  std::int64_t cooldown_left = 0;

 private:
  bool is_better(double metric) const;

  PlateauOptions options_;
};

}  // namespace lockstep::optim
