#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::optim {

/// By what a learning rate is multiplied after so many optimizer steps.
using Schedule = std::function<double(std::int64_t step)>;

/// Which schedule, by the names of transformers' `get_scheduler`, and its numbers, under the names that its
/// functions and Trainer's `lr_scheduler_kwargs` have. Steps are optimizer steps: neither the number of ranks
/// nor gradient accumulation multiplies them.
struct ScheduleOptions {
  /// "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "cosine_with_min_lr",
  /// "cosine_warmup_with_min_lr", "polynomial", "inverse_sqrt" or "warmup_stable_decay".
  std::string name = "linear";
  /// Steps in which the rate grows from 0 to its full value.
  std::int64_t num_warmup_steps = 0;
  /// Steps of the whole training. Not needed for the constant ones and inverse_sqrt.
  std::int64_t num_training_steps = 0;
  /// The cosines and warmup_stable_decay: waves over the decay. 0.5, half a wave down to 0; for
  /// cosine_with_restarts 1, and a whole number.
  std::optional<double> num_cycles = {};
  /// cosine_with_min_lr, cosine_warmup_with_min_lr: the lowest rate, or the same as a share of the full one;
  /// one of them, and 0 without.
  std::optional<double> min_lr = {};
  std::optional<double> min_lr_rate = {};
  /// cosine_warmup_with_min_lr: the share of the full rate that the warm-up begins with.
  std::optional<double> warmup_lr_rate = {};
  /// polynomial: the rate that is reached at the end, and the power of the way there.
  double lr_end = 1e-7;
  double power = 1;
  /// inverse_sqrt: num_warmup_steps, or 10,000 without any.
  std::optional<std::int64_t> timescale = {};
  /// warmup_stable_decay: steps of decay, and of full rate before it (what is left of num_training_steps,
  /// unless given).
  std::int64_t num_decay_steps = 0;
  std::optional<std::int64_t> num_stable_steps = {};
  /// warmup_stable_decay: the lowest rate as a share of the full one; "linear", "cosine" or "1-sqrt" for the
  /// ways up and down.
  double min_lr_ratio = 0;
  std::string warmup_type = "linear";
  std::string decay_type = "cosine";
};

/// The schedule with the numbers of transformers' `get_scheduler`. `lr` is the full rate, of which min_lr and
/// lr_end are a share. *Local*. Throws UsageError for a name that is unknown and numbers out of range.
Schedule make_schedule(const ScheduleOptions& options, double lr = 1);

/// When to lower the rate because a metric does not get better any more. Names, defaults and meaning as in
/// torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauOptions {
  /// "min": lower is better; "max": higher is.
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

/// The rule behind ReduceLrOnPlateau. *Local*.
class PlateauRule {
 public:
  /// Throws UsageError for numbers out of range.
  explicit PlateauRule(const PlateauOptions& options = {});

  /// True when the rate is to be lowered now.
  bool step(double metric);

  const PlateauOptions& options() const noexcept { return options_; }

  /// What the rule remembers.
  double best = 0;
  std::int64_t bad_epochs = 0;
  std::int64_t cooldown_left = 0;

 private:
  bool is_better(double metric) const;

  PlateauOptions options_;
};

}  // namespace lockstep::optim
