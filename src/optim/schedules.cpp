#include "lockstep/optim/schedules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {
namespace {

using std::numbers::pi;

/// The options and the full rate.
struct Settings : ScheduleOptions {
  double lr = 1;
};

/// The quotient of two integers as in Python, with a divisor of at least 1.
double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

/// `decay` after a warm-up from 0.
Schedule with_warmup(std::int64_t warmup, Schedule decay) {
  return [warmup, decay = std::move(decay)](std::int64_t step) {
    return step < warmup ? share(step, warmup) : decay(step);
  };
}

Schedule constant(const ScheduleOptions&) {
  return [](std::int64_t) { return 1.0; };
}

Schedule constant_with_warmup(const ScheduleOptions& options) {
  return with_warmup(options.num_warmup_steps, constant(options));
}

Schedule linear(const ScheduleOptions& options) {
  return with_warmup(options.num_warmup_steps, [o = options](std::int64_t step) {
    return std::max(0.0, share(o.num_training_steps - step, o.num_training_steps - o.num_warmup_steps));
  });
}

/// A cosine between 1 and `lowest`.
double wave(double cycles, double progress, double lowest) {
  const double factor = 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
  return std::max(0.0, factor * (1 - lowest) + lowest);
}

Schedule cosine_to(const ScheduleOptions& options, double lowest) {
  return with_warmup(options.num_warmup_steps, [o = options, lowest](std::int64_t step) {
    const double progress = share(step - o.num_warmup_steps, o.num_training_steps - o.num_warmup_steps);
    return wave(o.num_cycles.value_or(0.5), progress, lowest);
  });
}

Schedule cosine(const ScheduleOptions& options) { return cosine_to(options, 0); }

Schedule cosine_with_min_lr(const ScheduleOptions& options) {
  return cosine_to(options, *options.min_lr_rate);
}

Schedule cosine_warmup_with_min_lr(const ScheduleOptions& options) {
  return [o = options](std::int64_t step) {
    const auto warmup = static_cast<double>(o.num_warmup_steps);
    const auto now = static_cast<double>(step);
    if (step < o.num_warmup_steps && !o.warmup_lr_rate) return (now + 1) / std::max(1.0, warmup);
    if (step < o.num_warmup_steps)
      return *o.warmup_lr_rate + (1 - *o.warmup_lr_rate) * now / std::max(1.0, warmup - 1);
    const double decay = std::max(1.0, static_cast<double>(o.num_training_steps) - warmup);
    return wave(o.num_cycles.value_or(0.5), (now - warmup + 1) / decay, *o.min_lr_rate);
  };
}

Schedule cosine_with_restarts(const ScheduleOptions& options) {
  return with_warmup(options.num_warmup_steps, [o = options](std::int64_t step) {
    const double progress = share(step - o.num_warmup_steps, o.num_training_steps - o.num_warmup_steps);
    if (progress >= 1) return 0.0;
    return std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(o.num_cycles.value_or(1) * progress, 1.0))));
  });
}

Schedule polynomial(const Settings& settings) {
  return with_warmup(settings.num_warmup_steps, [o = settings](std::int64_t step) {
    if (step > o.num_training_steps) return o.lr_end / o.lr;
    const double left = 1 - static_cast<double>(step - o.num_warmup_steps) /
                                static_cast<double>(o.num_training_steps - o.num_warmup_steps);
    return ((o.lr - o.lr_end) * std::pow(left, o.power) + o.lr_end) / o.lr;
  });
}

Schedule inverse_sqrt(const ScheduleOptions& options) {
  constexpr std::int64_t kWithoutWarmup = 10'000;
  const std::int64_t scale =
      options.timescale.value_or(options.num_warmup_steps > 0 ? options.num_warmup_steps : kWithoutWarmup);
  return with_warmup(options.num_warmup_steps, [scale, warmup = options.num_warmup_steps](std::int64_t step) {
    return 1.0 / std::sqrt(static_cast<double>(step + scale - warmup) / static_cast<double>(scale));
  });
}

/// From 0 to 1.
double rise(const std::string& type, double progress) {
  if (type == "linear") return progress;
  if (type == "cosine") return 0.5 * (1.0 - std::cos(pi * progress));
  return 1.0 - std::sqrt(1.0 - progress);
}

/// From 1 to 0.
double fall(const std::string& type, double progress, double cycles) {
  if (type == "linear") return 1.0 - progress;
  if (type == "cosine") return 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
  return 1.0 - std::sqrt(progress);
}

Schedule warmup_stable_decay(const ScheduleOptions& options) {
  const std::int64_t stable = options.num_stable_steps.value_or(
      options.num_training_steps - options.num_warmup_steps - options.num_decay_steps);
  return [o = options, stable](std::int64_t step) {
    const std::int64_t decayed = step - o.num_warmup_steps - stable;
    const auto above = [&](double factor) {
      return std::max(0.0, factor * (1.0 - o.min_lr_ratio) + o.min_lr_ratio);
    };
    if (step < o.num_warmup_steps) return above(rise(o.warmup_type, share(step, o.num_warmup_steps)));
    if (decayed < 0) return 1.0;
    if (decayed >= o.num_decay_steps) return o.min_lr_ratio;
    return above(fall(o.decay_type, share(decayed, o.num_decay_steps), o.num_cycles.value_or(0.5)));
  };
}

struct Kind {
  std::function<Schedule(const Settings&)> make;
  bool needs_training_steps;
};

/// The options that each takes, for users of the Trainer, are in train/rules/schedule_kwargs.cpp.
const std::map<std::string, Kind>& kinds() {
  static const std::map<std::string, Kind> known = {
      {"constant", {constant, false}},
      {"constant_with_warmup", {constant_with_warmup, false}},
      {"cosine", {cosine, true}},
      {"cosine_warmup_with_min_lr", {cosine_warmup_with_min_lr, true}},
      {"cosine_with_min_lr", {cosine_with_min_lr, true}},
      {"cosine_with_restarts", {cosine_with_restarts, true}},
      {"inverse_sqrt", {inverse_sqrt, false}},
      {"linear", {linear, true}},
      {"polynomial", {polynomial, true}},
      {"warmup_stable_decay", {warmup_stable_decay, false}}};
  return known;
}

[[noreturn]] void refuse(const ScheduleOptions& options, const std::string& why) {
  throw UsageError(fmt::format("schedule '{}': {}", options.name, why));
}

bool is_shape(const std::string& type) { return type == "linear" || type == "cosine" || type == "1-sqrt"; }

void check_stable_decay(const ScheduleOptions& options) {
  if (!is_shape(options.warmup_type) || !is_shape(options.decay_type))
    refuse(options, "warmup_type and decay_type must be linear, cosine or 1-sqrt");
  const bool has_length = options.num_stable_steps || options.num_training_steps > 0;
  if (options.num_decay_steps < 1 || !has_length)
    refuse(options, "needs num_decay_steps, and num_training_steps or num_stable_steps");
}

void check_schedule_options(const ScheduleOptions& options, const Kind& kind, double lr) {
  if (options.num_warmup_steps < 0) refuse(options, "num_warmup_steps must not be negative");
  if (kind.needs_training_steps && options.num_training_steps < 1)
    refuse(options, "needs num_training_steps, the optimizer steps of the whole training");
  if (options.name == "polynomial" && options.num_training_steps == options.num_warmup_steps)
    refuse(options, "num_training_steps must be more than num_warmup_steps");
  if (options.name == "polynomial" && options.lr_end >= lr)
    refuse(options, fmt::format("lr_end is {}, expected less than the full rate, {}", options.lr_end, lr));
  if (options.min_lr && options.min_lr_rate) refuse(options, "takes one of min_lr and min_lr_rate, not both");
  if (options.name == "inverse_sqrt" && options.timescale.value_or(1) < 1)
    refuse(options, "timescale must be at least 1");
  if (options.name == "warmup_stable_decay") check_stable_decay(options);
}

/// A full rate of 0 stays 0 with any fraction.
Settings settings_of(const ScheduleOptions& options, double lr) {
  Settings settings{options, lr > 0 ? lr : 1};
  settings.min_lr_rate = options.min_lr ? *options.min_lr / settings.lr : options.min_lr_rate.value_or(0);
  return settings;
}

}  // namespace

Schedule make_schedule(const ScheduleOptions& options, double lr) {
  const auto found = kinds().find(options.name);
  if (found == kinds().end()) {
    std::string names;
    for (const auto& kind : kinds()) names += (names.empty() ? "" : ", ") + kind.first;
    refuse(options,
           "unknown name. Expected one of " + names + "; a plateau of a metric is ReduceLrOnPlateau");
  }
  check_schedule_options(options, found->second, lr > 0 ? lr : std::numeric_limits<double>::infinity());
  return found->second.make(settings_of(options, lr));
}

PlateauRule::PlateauRule(const PlateauOptions& options) : options_(options) {
  if (options.factor >= 1 || options.factor <= 0)
    throw UsageError("ReduceLrOnPlateau: factor must be above 0 and below 1.");
  if (options.mode != "min" && options.mode != "max")
    throw UsageError(fmt::format("ReduceLrOnPlateau: mode must be min or max, not '{}'.", options.mode));
  if (options.threshold_mode != "rel" && options.threshold_mode != "abs")
    throw UsageError(fmt::format("ReduceLrOnPlateau: threshold_mode must be rel or abs, not '{}'.",
                                 options.threshold_mode));
  best = (options.mode == "min" ? 1 : -1) * std::numeric_limits<double>::infinity();
}

bool PlateauRule::is_better(double metric) const {
  const bool relative = options_.threshold_mode == "rel";
  if (options_.mode == "min")
    return metric < (relative ? best * (1.0 - options_.threshold) : best - options_.threshold);
  return metric > (relative ? best * (options_.threshold + 1.0) : best + options_.threshold);
}

bool PlateauRule::step(double metric) {
  if (is_better(metric)) {
    best = metric;
    bad_epochs = 0;
  } else {
    ++bad_epochs;
  }
  if (cooldown_left > 0) {
    --cooldown_left;
    bad_epochs = 0;
  }
  if (bad_epochs <= options_.patience) return false;
  cooldown_left = options_.cooldown;
  bad_epochs = 0;
  return true;
}

}  // namespace lockstep::optim
