#include "training_run.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// True while it lives.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace

TrainOutput TrainingRun::run() {
  prepare();
  begin_state({});
  call(&TrainerCallback::on_prepare);
  resume();
  impl_.control.should_training_stop = false;
  call(&TrainerCallback::on_train_begin);
  begin_ = std::chrono::steady_clock::now();
  say_if_finished();
  between_steps([this] { finish_unfinished(); });
  evaluate_on_start();
  run_epochs();
  return finish();
}

/// A run that is started once more has nothing left to do where a limit is reached, or where a callback such
/// as early stopping has ended it.
void TrainingRun::say_if_finished() {
  const TrainerState& state = impl_.state;
  const bool at_limit = time_is_up() || state.global_step >= state.max_steps;
  const bool is_ended =
      std::exchange(impl_.control.should_training_stop, impl_.control.should_training_stop || at_limit);
  const TrainerControl& left = state.unfinished;
  const bool has_work = left.should_log || left.should_evaluate || left.should_save;
  if (checkpoints_->resumed_from().empty() || has_work || !(at_limit || is_ended)) return;
  impl_.accelerator.print(fmt::format(
      "already finished: step {} of {}. To train on, {}; to begin anew, set resume_from_checkpoint to "
      "never or output_dir to another folder",
      state.global_step, state.max_steps,
      at_limit ? "raise max_steps, num_train_epochs or max_duration"
               : "raise the patience of the callback that ended the training"));
}

/// Before the first step of all; what a signal interrupted of it is done when the training goes on.
void TrainingRun::evaluate_on_start() {
  const bool begins = impl_.state.global_step == 0 && !impl_.control.should_training_stop;
  if (!impl_.args.eval_on_start || !begins) return;
  between_steps([this] {
    const Raised raised(impl_.resumes_evaluation);
    best_metric_of(trainer_.evaluate());
  });
}

/// The loader first: a global batch settles the accumulation steps by it.
void TrainingRun::prepare() {
  auto [accelerator, args, parts] = std::tie(impl_.accelerator, impl_.args, impl_.parts);
  if (impl_.has_trained) accelerator.free_memory();
  check_evaluations();
  impl_.has_trained = impl_.in_training = true;
  batches_.emplace(accelerator.prepare(trainer_.get_train_dataloader()));
  parts.model->prepare(accelerator);
  parts.model->train(true);
  const std::int64_t accumulation = accelerator.gradient_accumulation_steps();
  plan_ = train::make_training_plan(args, {.batches_per_epoch = batches_->size(),
                                           .accumulation_steps = accumulation,
                                           .samples_per_step = batches_->total_batch_size() * accumulation});
  impl_.optimizer = trainer_.create_optimizer();
  impl_.scheduler = trainer_.create_scheduler(*impl_.optimizer, plan_.max_steps, plan_.warmup_steps);
  optimizer_.emplace(accelerator.prepare(*impl_.optimizer));
  if (impl_.scheduler) accelerator.prepare(*impl_.scheduler);
  meter_.emplace(accelerator, args.average_tokens_across_devices);
  checkpoints_.emplace(accelerator, CheckpointOptions{.folder = args.output_dir,
                                                      .keep_last = 0,
                                                      .total_limit = args.save_total_limit,
                                                      .add_files = [this] { return files_to_add(); },
                                                      .asynchronous = args.async_save,
                                                      .save_on_each_node = args.save_on_each_node,
                                                      .resume = args.resume_from_checkpoint,
                                                      .stop_at_sigterm = args.stop_at_sigterm});
}

/// What would only come out at the first evaluation.
void TrainingRun::check_evaluations() const {
  const TrainerParts& parts = impl_.parts;
  if (impl_.args.eval_strategy == "no") return;
  if (!parts.eval_dataset && parts.eval_datasets.empty()) {
    throw UsageError("eval_strategy is " + impl_.args.eval_strategy +
                     ", but there is no data set to evaluate on: set TrainerParts::eval_dataset, or "
                     "eval_strategy to no");
  }
  if (const auto metric = best_metric_name(impl_.args)) check_is_known(*metric);
}

/// What metrics do not tell beforehand, the first evaluation does: see best_metric_of().
void TrainingRun::check_is_known(const std::string& metric) const {
  std::vector<std::string> prefixes;
  for (const auto& entry : impl_.parts.eval_datasets) prefixes.push_back("eval_" + entry.first);
  if (prefixes.empty()) prefixes.emplace_back("eval");
  std::string known;
  for (const auto& prefix : prefixes) {
    auto names = trainer_.metric_names(prefix);
    if (names.empty() && metric.starts_with(prefix + "_")) return;
    if (names.empty()) names.push_back(prefix + "_...");
    if (std::find(names.begin(), names.end(), metric) != names.end()) return;
    for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
  }
  throw UsageError("metric_for_best_model is '" + metric + "', which evaluations do not have: there are " +
                   known + ". A program whose evaluate() returns more says so in metric_names()");
}

/// What was done is `done`'s; what is to be done, the arguments'.
void TrainingRun::begin_state(TrainerState done) {
  TrainerState& state = impl_.state;
  const TrainerState before = std::exchange(state, std::move(done));
  state.is_world_process_zero = before.is_world_process_zero;
  state.is_local_process_zero = before.is_local_process_zero;
  state.max_steps = plan_.max_steps;
  state.num_train_epochs = plan_.num_train_epochs;
  state.logging_steps = plan_.logging_steps;
  state.eval_steps = plan_.eval_steps;
  state.save_steps = plan_.save_steps;
  state.train_batch_size = batches_->batch_size();
  state.total_batch_size = batches_->total_batch_size() * impl_.accelerator.gradient_accumulation_steps();
}

void TrainingRun::run_epochs() {
  const auto goes_on = [this] {
    return !impl_.control.should_training_stop && impl_.state.global_step < impl_.state.max_steps;
  };
  while (goes_on()) run_epoch();
}

void TrainingRun::run_epoch() {
  const std::int64_t epoch = batches_->epoch();
  impl_.control.should_epoch_stop = false;
  call(&TrainerCallback::on_epoch_begin);
  for (auto& batch : *batches_) {
    run_micro_batch(batch);
    if (impl_.control.should_epoch_stop || impl_.control.should_training_stop) break;
  }
  if (preempted_) return;
  if (impl_.control.should_epoch_stop) batches_->set_epoch(epoch + 1);
  between_steps([this] {
    call(&TrainerCallback::on_epoch_end);
    log_evaluate_save();
  });
}

void TrainingRun::run_micro_batch(const Batch& batch) {
  if (micro_batches_in_step_++ == 0) {
    auto& control = impl_.control;
    control.should_log = control.should_evaluate = control.should_save = false;
    metric_of_step_.reset();
    call(&TrainerCallback::on_step_begin);
  }
  const auto window = impl_.accelerator.accumulate();
  impl_.last_loss = trainer_.training_step(batch);
  impl_.last_loss.value = impl_.last_loss.value.detach();
  meter_->add(impl_.last_loss);
  flops_ += trainer_.floating_point_operations(batch);
  if (impl_.accelerator.sync_gradients()) return finish_step();
  call(&TrainerCallback::on_substep_end);
}

void TrainingRun::finish_step() {
  micro_batches_in_step_ = 0;
  meter_->end_step();
  clip();
  call(&TrainerCallback::on_pre_optimizer_step);
  optimizer_->step();
  call(&TrainerCallback::on_optimizer_step);
  step_schedule();
  optimizer_->zero_grad();
  TrainerState& state = impl_.state;
  ++state.global_step;
  checkpoints_->count_step();
  state.epoch = static_cast<double>(batches_->epoch()) +
                static_cast<double>(batches_->position()) / static_cast<double>(batches_->size());
  // So it is the last step, with all that belongs to one.
  if (time_is_up()) state.max_steps = state.global_step;
  between_steps([this] {
    call(&TrainerCallback::on_step_end);
    if (meter_->is_full()) fold_losses();
    log_evaluate_save();
  });
  if (preempted_) return;
  // A training that ends here does so with all that belongs to its end.
  const bool asked = impl_.accelerator.should_stop();
  if (asked && !impl_.control.should_training_stop) preempt();
}

/// False: a signal interrupted an evaluation in it.
bool TrainingRun::completes(const std::function<void()>& work) {
  const Raised raised(impl_.between_steps);
  try {
    work();
    return true;
  } catch (const EvaluationInterrupted&) {
    return false;
  }
}

/// An evaluation in it may be interrupted: then the training ends here, and `work` when it goes on.
void TrainingRun::between_steps(const std::function<void()>& work) {
  if (completes(work)) return;
  if (impl_.control.should_log) log_step();
  impl_.control.should_log = false;
  impl_.state.unfinished = impl_.control;
  is_outdated_ = true;
  preempt();
}

/// What a signal interrupted after the last step of the run before.
void TrainingRun::finish_unfinished() {
  const TrainerControl left = std::exchange(impl_.state.unfinished, {});
  const Raised raised(impl_.resumes_evaluation);
  impl_.control.should_log = left.should_log;
  impl_.control.should_evaluate = left.should_evaluate;
  impl_.control.should_save = left.should_save;
  impl_.control.should_training_stop = impl_.control.should_training_stop || left.should_training_stop;
  if (!left.should_log && !left.should_evaluate && !left.should_save) return;
  is_outdated_ = true;
  log_evaluate_save();
  if (is_outdated_) write_checkpoint();
}

/// A limit of infinity leaves gradients as they are, and still tells their norm.
void TrainingRun::clip() {
  const double limit = impl_.args.max_grad_norm;
  std::vector<at::Tensor> parameters;
  for (const auto& entry : trainer_.model().parameters()) {
    if (entry.tensor.grad().defined()) parameters.push_back(entry.tensor);
  }
  grad_norm_ = impl_.accelerator.clip_grad_norm_(parameters,
                                                 limit > 0 ? limit : std::numeric_limits<double>::infinity());
}

/// The rate that is logged is the one that this step used.
void TrainingRun::step_schedule() {
  learning_rate_ = impl_.optimizer->param_groups().front().options().get_lr();
  if (impl_.scheduler && !impl_.accelerator.optimizer_step_was_skipped()) impl_.scheduler->after_step();
}

bool TrainingRun::time_is_up() const {
  if (!plan_.max_seconds) return false;
  // Ranks have clocks of their own.
  return impl_.accelerator.process_group().broadcast_object(nlohmann::json(train_seconds())) >=
         *plan_.max_seconds;
}

double TrainingRun::train_seconds() const { return seconds_before_ + seconds_since(begin_); }

TrainOutput TrainingRun::finish() {
  TrainerState& state = impl_.state;
  fold_losses();
  state.train_seconds = train_seconds();
  checkpoints_->wait();
  const std::int64_t steps = state.global_step - first_step_;
  TrainOutput output{.global_step = state.global_step,
                     .training_loss = steps > 0 ? loss_of_run_ / static_cast<double>(steps) : 0,
                     .metrics = {},
                     .preempted = preempted_};
  add_speed(output.metrics, "train", seconds_since(begin_),
            static_cast<double>(steps * state.total_batch_size), static_cast<double>(steps));
  output.metrics.emplace_back("total_flos", state.total_flos);
  if (steps > 0) output.metrics.emplace_back("train_loss", output.training_loss);
  if (first_step_ > 0 && steps > 0) {
    impl_.accelerator.print(fmt::format("train_loss is the mean of the steps {} to {}, which this run made",
                                        first_step_ + 1, state.global_step));
  }
  if (!preempted_) {
    trainer_.log(output.metrics);
    load_best();
  }
  output.metrics.emplace_back("epoch", state.epoch);
  call(&TrainerCallback::on_train_end);
  impl_.in_training = false;
  return output;
}

TrainOutput Trainer::train() { return TrainingRun(*this, *impl_).run(); }

}  // namespace lockstep
