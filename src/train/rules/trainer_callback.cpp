#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {
namespace {

bool divides(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }

/// Whether evaluations have begun. The delay counts steps, or epochs if its unit or eval_strategy is epochs.
bool is_after_delay(const CallbackContext& event) {
  const Duration& delay = event.args.eval_delay;
  if (delay.unit() == Duration::Unit::epochs) return delay.value() <= event.state.epoch;
  const bool by_epoch = event.args.eval_strategy == IntervalStrategy::epoch;
  if (by_epoch && delay.unit() == Duration::Unit::steps) return delay.value() <= event.state.epoch;
  return delay.steps({.steps_per_epoch = 0,
                      .samples_per_step = event.state.total_batch_size,
                      .training_steps = event.state.max_steps}) <= event.state.global_step;
}

void end_of_training(CallbackContext& event) {
  auto& [args, state, control, trainer, values] = event;
  control.should_training_stop = true;
  if (args.eval_strategy == IntervalStrategy::steps && is_after_delay(event)) control.should_evaluate = true;
  if (args.save_strategy == SaveStrategy::steps) control.should_save = true;
}

}  // namespace

void DefaultFlowCallback::on_step_end(CallbackContext& event) {
  auto& [args, state, control, trainer, values] = event;
  const std::int64_t step = state.global_step;
  if (step == 1 && args.logging_first_step) control.should_log = true;
  if (args.logging_strategy == IntervalStrategy::steps && divides(state.logging_steps, step))
    control.should_log = true;
  if (args.eval_strategy == IntervalStrategy::steps && divides(state.eval_steps, step) &&
      is_after_delay(event))
    control.should_evaluate = true;
  if (args.save_strategy == SaveStrategy::steps && divides(state.save_steps, step))
    control.should_save = true;
  if (step >= state.max_steps) end_of_training(event);
}

void DefaultFlowCallback::on_epoch_end(CallbackContext& event) {
  auto& [args, state, control, trainer, values] = event;
  if (args.logging_strategy == IntervalStrategy::epoch) control.should_log = true;
  if (args.eval_strategy == IntervalStrategy::epoch && is_after_delay(event)) control.should_evaluate = true;
  if (args.save_strategy == SaveStrategy::epoch) control.should_save = true;
  // The epochs are over, but on_step_end could not know that their last step was the last one.
  if (state.global_step < state.max_steps || control.should_training_stop) return;
  const TrainerControl before = control;
  end_of_training(event);
  // What on_step_end has done is not repeated.
  if (divides(state.eval_steps, state.global_step)) control.should_evaluate = before.should_evaluate;
  if (divides(state.save_steps, state.global_step)) control.should_save = before.should_save;
}

EarlyStoppingCallback::EarlyStoppingCallback(std::int64_t patience, double threshold)
    : patience_(patience), threshold_(threshold) {
  if (patience < 1 || !(threshold >= 0))
    throw UsageError(
        fmt::format("EarlyStoppingCallback: the patience must be 1 or more and the threshold 0 or more, not "
                    "{} and {}",
                    patience, threshold));
}

void EarlyStoppingCallback::on_prepare(CallbackContext& /*event*/) { counter_ = 0; }

void EarlyStoppingCallback::on_train_begin(CallbackContext& event) {
  if (event.args.eval_strategy == IntervalStrategy::no)
    throw UsageError("EarlyStoppingCallback needs evaluations: set eval_strategy to steps or epoch");
  if (!best_metric_name(event.args))
    throw UsageError("EarlyStoppingCallback needs to know what is better: set metric_for_best_model");
  if (counter_ >= patience_) event.control.should_training_stop = true;
}

void EarlyStoppingCallback::on_evaluate(CallbackContext& event) {
  const auto found = LogEntry{event.values}.find(*best_metric_name(event.args));
  if (!found) return;
  const auto& best = event.state.best_metric;
  const double gain = best ? (greater_metric_is_better(event.args) ? *found - *best : *best - *found) : 0;
  counter_ = !best || (gain > 0 && gain > threshold_) ? 0 : counter_ + 1;
  if (counter_ >= patience_) event.control.should_training_stop = true;
}

std::string EarlyStoppingCallback::state_dict() const {
  const nlohmann::ordered_json state{
      {"args", {{"early_stopping_patience", patience_}, {"early_stopping_threshold", threshold_}}},
      {"attributes", {{"early_stopping_patience_counter", counter_}}}};
  return json_text(state);
}

void EarlyStoppingCallback::load_state_dict(const std::string& state) {
  try {
    counter_ = nlohmann::json::parse(state).at("attributes").at("early_stopping_patience_counter");
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("the state of EarlyStoppingCallback does not fit: ") + error.what());
  }
}

}  // namespace lockstep
