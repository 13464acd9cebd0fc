#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/checkpoint_rotation.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "train/model_content.hpp"
#include "train/state/checkpoint_writer.hpp"
#include "train/trainer/callback_states.hpp"
#include "train/trainer/training_run.hpp"
#include "train/trainer/weights_only.hpp"

namespace lockstep {
namespace {

std::string join_names(const LogValues& values) {
  std::vector<std::string> names;
  for (const auto& entry : values) names.push_back(entry.first);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Checks on rank 0's file system.
bool is_there(const Accelerator& accelerator, const std::filesystem::path& folder) {
  return accelerator.on_main_process([&] { return std::filesystem::exists(folder); });
}

}  // namespace

void TrainingRun::log_evaluate_save() {
  if (impl_.control.should_log) log_step();
  if (impl_.control.should_evaluate) evaluate();
  if (impl_.control.should_save) save();
}

/// Adds what the ranks have counted since the last call.
void TrainingRun::fold_counts() {
  if (is_elastic_) return;  // Each step was shared.
  const auto& accelerator = impl_.accelerator;
  const at::Tensor own = at::tensor({std::exchange(flops_, 0), std::exchange(samples_, 0)}, at::kDouble);
  const at::Tensor all = accelerator.reduce(own.to(accelerator.device())).cpu();
  impl_.state.total_flos += all[0].item<double>();
  impl_.state.num_samples_seen += static_cast<std::int64_t>(all[1].item<double>());
}

void TrainingRun::fold_losses() {
  TrainerState& state = impl_.state;
  const auto losses = meter_->fold();
  fold_counts();
  std::size_t left_out = 0;
  // One by one, so that the sums have the same bits wherever a checkpoint interrupts them.
  for (const double loss : losses) {
    state.total_loss += loss;
    loss_of_run_ += loss;
    if (impl_.args.logging_nan_inf_filter && !std::isfinite(loss)) {
      ++left_out;
      continue;
    }
    state.unlogged_loss += loss;
    ++state.unlogged_steps;
  }
  if (left_out == 0) return;
  impl_.warn(left_out, " of the ", losses.size(), " steps up to step ", state.global_step,
             " had a loss that is not finite: they are left out of the logged mean");
}

void TrainingRun::log_step() {
  TrainerState& state = impl_.state;
  if (state.global_step <= last_logged_step_) return;
  fold_losses();
  const auto steps = static_cast<double>(state.unlogged_steps);
  LogValues values{{"loss", steps > 0 ? state.unlogged_loss / steps : std::nan("")}};
  if (grad_norm_.defined()) values.emplace_back("grad_norm", grad_norm_.item<double>());
  values.emplace_back("learning_rate", learning_rate_);
  state.unlogged_loss = 0;
  state.unlogged_steps = 0;
  last_logged_step_ = state.global_step;
  trainer_.log(values);
  if (has_records_) record_->write_if_old();
}

void TrainingRun::evaluate() {
  fold_counts();
  try {
    judge(trainer_.evaluate());
  } catch (const EvaluationInterrupted&) {
    // Evaluating the first of several data sets has cleared it.
    impl_.control.should_evaluate = true;
    throw;
  }
}

/// The value of metric_for_best_model; null if that is not set.
std::optional<double> TrainingRun::best_metric_of(const LogValues& metrics) const {
  const auto name = best_metric_name(impl_.args);
  if (!name) return std::nullopt;
  if (const auto value = LogEntry{metrics}.find(*name)) return value;
  throw UsageError(
      fmt::format("metric_for_best_model is '{}', which the evaluation does not have: there are {}", *name,
                  join_names(metrics)));
}

/// The scheduler's metric: that of the best model, otherwise the loss, as for reduce_lr_on_plateau.
void TrainingRun::step_schedule_by(const LogValues& metrics, std::optional<double> best) {
  if (!impl_.scheduler) return;
  if (!best) best = LogEntry{metrics}.find("eval_loss");
  if (best) return impl_.scheduler->step(*best);
  if (dynamic_cast<optim::ReduceLrOnPlateau*>(impl_.scheduler.get()) == nullptr) return;
  throw UsageError(
      fmt::format("ReduceLrOnPlateau waits for the metric 'eval_loss', which the evaluation does not have: "
                  "set metric_for_best_model to one of {}",
                  join_names(metrics)));
}

/// Records the evaluation's metric and whether it is strictly better than all before. As in transformers, the
/// best one begins at infinity, so that NaN is never better.
void TrainingRun::judge(const LogValues& metrics) {
  const auto value = best_metric_of(metrics);
  step_schedule_by(metrics, value);
  if (!value) return;
  metric_of_step_ = *value;
  TrainerState& state = impl_.state;
  const bool greater = greater_metric_is_better(impl_.args);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!state.best_metric || std::isnan(*state.best_metric))
    state.best_metric = greater ? -kInfinity : kInfinity;
  const bool better = greater ? *value > *state.best_metric : *value < *state.best_metric;
  if (better) state.best_metric = *value;
  if (better && impl_.args.save_strategy != SaveStrategy::no) state.best_global_step = state.global_step;
  if (impl_.args.save_strategy == SaveStrategy::best) impl_.control.should_save = better;
}

void TrainingRun::save() {
  TrainerState& state = impl_.state;
  fold_losses();
  state.train_seconds = train_seconds();
  state.learning_rate = learning_rate_;
  if (grad_norm_.defined()) state.grad_norm = grad_norm_.item<double>();
  // The epoch ends after this checkpoint: the job may be killed before the next one.
  if (in_epoch_ && impl_.control.should_epoch_stop)
    state.unfinished.should_epoch_stop = state.unfinished_step = true;
  note_best_checkpoint();
  for (const auto& [name, callbacks] : impl_.stateful_callbacks())
    state.stateful_callbacks[name] = train::state_of(callbacks);
  write_checkpoint();
  has_records_ = true;
  record_->write();
  impl_.control.should_save = false;
  call(&TrainerCallback::on_save);
}

/// Whether this step's evaluation is better than those of all checkpoints so far. transformers compares it
/// with all evaluations, and then has no checkpoint to load, or an earlier one, if a better one was not
/// saved.
bool TrainingRun::is_best_saved() const {
  if (!metric_of_step_) return false;
  const bool greater = greater_metric_is_better(impl_.args);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double best = greater ? -kInfinity : kInfinity;
  const std::string saved = best_saved();
  const std::string name = best_metric_name(impl_.args).value_or("");
  for (const auto& entry : impl_.state.log_history) {
    if (checkpoint_name(entry.step) != saved) continue;
    if (const auto value = entry.find(name)) best = *value;
  }
  return greater ? *metric_of_step_ > best : *metric_of_step_ < best;
}

/// The folder may also have checkpoints of another run, of the same steps.
void TrainingRun::note_best_checkpoint() {
  TrainerState& state = impl_.state;
  if (!state.best_global_step) return;
  const auto written = written_.find(*state.best_global_step);
  const bool is_now =
      *state.best_global_step == state.global_step || (written == written_.end() && is_best_saved());
  if (!is_now && written == written_.end()) return;
  const std::filesystem::path folder =
      is_now ? std::filesystem::path(impl_.args.output_dir) / checkpoint_name(state.global_step)
             : written->second;
  if (!is_now && !is_there(impl_.accelerator, folder)) return;
  state.best_model_checkpoint = folder.string();
  checkpoints_->protect(folder.filename().string());
}

/// A preempted training always writes a full checkpoint.
void TrainingRun::write_checkpoint() {
  const std::int64_t step = impl_.state.global_step;
  written_[step] = std::filesystem::path(impl_.args.output_dir) / checkpoint_name(step);
  const bool is_outdated = std::exchange(is_outdated_, false);
  if (impl_.args.save_only_model) {
    if (!preempted_) return write_weights();
    on_writers([&] { train::remove_weights(impl_.args.output_dir, impl_.state.global_step); });
  }
  if (metric_of_step_) {
    checkpoints_->save(*metric_of_step_);
  } else if (is_outdated) {
    checkpoints_->save_again();
  } else {
    checkpoints_->save();
  }
}

/// Runs `write` on rank 0; with save_on_each_node, on one rank per file system.
void TrainingRun::on_writers(const std::function<void()>& write) {
  const auto& accelerator = impl_.accelerator;
  if (!impl_.args.save_on_each_node) return accelerator.on_main_process(write);
  train::run_on_writers(accelerator, train::writes_for_its_node(accelerator, impl_.args.output_dir), write);
}

void TrainingRun::write_weights() {
  const trace::Range range("checkpoint");
  const TrainerState& state = impl_.state;
  const auto whole = trainer_.model().full_parameters(impl_.accelerator);
  auto tensors = trainer_.model().parameters();
  for (auto& buffer : trainer_.model().buffers()) tensors.push_back(std::move(buffer));
  const auto adapter = trainer_.model().adapter();
  const auto write = [&, add = files_to_add()](const std::filesystem::path& path) {
    if (adapter) {
      write_adapter(path, *adapter, adapter->tensors, get_from(adapter->tensors));
    } else {
      write_model(path, tensors);
    }
    add(path);
  };
  const std::string best = best_saved();
  on_writers([&] {
    train::save_weights_only(impl_.args.output_dir, state.global_step, write,
                             {.total_limit = impl_.args.save_total_limit, .protect = best});
  });
}

void TrainingRun::preempt() {
  preempted_ = true;
  save();
  checkpoints_->wait();
  impl_.accelerator.print("preempted: saved ", impl_.args.output_dir, "/",
                          checkpoint_name(impl_.state.global_step), " at step ", impl_.state.global_step,
                          "; the same command resumes from there");
  impl_.control.should_training_stop = true;
}

/// The name of the best checkpoint's folder; empty: none was saved yet. A better evaluation since then may
/// have been of a step that was not saved.
std::string TrainingRun::best_saved() const {
  const auto& saved = impl_.state.best_model_checkpoint;
  return saved ? std::filesystem::path(*saved).filename().string() : "";
}

/// A whole checkpoint has the models of all that was prepared, by number; save_only_model writes this
/// trainer's model alone.
void TrainingRun::load_best() {
  if (!impl_.args.load_best_model_at_end) return;
  if (!impl_.state.best_model_checkpoint) {
    impl_.warn("load_best_model_at_end: no checkpoint belongs to an evaluation with a finite ",
               impl_.args.metric_for_best_model.value_or("loss"), ": the model keeps the weights of step ",
               impl_.state.global_step);
    return;
  }
  const std::filesystem::path path = *impl_.state.best_model_checkpoint;
  if (is_there(impl_.accelerator, path)) {
    const bool is_whole = is_there(impl_.accelerator, path / kManifestFileName);
    if (is_whole && impl_.scope.load_models(path)) return;
    return trainer_.model().load(impl_.accelerator, path);
  }
  impl_.warn("load_best_model_at_end: the best checkpoint, '", *impl_.state.best_model_checkpoint,
             "', does not exist any more: the model keeps the weights of step ", impl_.state.global_step);
}

}  // namespace lockstep
