#include "training_run.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "weights_only.hpp"

namespace lockstep {
namespace {

double sum_over_ranks(const Accelerator& accelerator, double value) {
  const auto options = at::TensorOptions(accelerator.device()).dtype(at::kDouble);
  return accelerator.reduce(at::full({1}, value, options)).item<double>();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Rank 0's view of the file system counts.
bool is_there(const Accelerator& accelerator, const std::filesystem::path& folder) {
  bool found = false;
  accelerator.on_main_process([&] { found = std::filesystem::exists(folder); });
  return accelerator.process_group().broadcast_object(nlohmann::json(found)).get<bool>();
}

}  // namespace

TrainOutput TrainingRun::run() {
  prepare();
  begin_state({});
  call(&TrainerCallback::on_prepare);
  resume();
  call(&TrainerCallback::on_train_begin);
  impl_.control.should_training_stop = impl_.state.global_step >= impl_.state.max_steps;
  begin_ = std::chrono::steady_clock::now();
  if (impl_.args.eval_on_start && !impl_.control.should_training_stop) trainer_.evaluate();
  run_epochs();
  return finish();
}

/// The loader first: a global batch settles the accumulation steps by it.
void TrainingRun::prepare() {
  auto [accelerator, args, parts] = std::tie(impl_.accelerator, impl_.args, impl_.parts);
  if (impl_.has_trained) accelerator.free_memory();
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
  meter_.emplace(accelerator);
  checkpoints_.emplace(accelerator, CheckpointOptions{.folder = args.output_dir,
                                                      .keep_last = 0,
                                                      .total_limit = args.save_total_limit,
                                                      .add_files = [this] { return files_to_add(); },
                                                      .asynchronous = args.async_save,
                                                      .save_on_each_node = args.save_on_each_node,
                                                      .resume = args.resume_from_checkpoint,
                                                      .stop_at_sigterm = args.stop_at_sigterm});
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
  call(&TrainerCallback::on_epoch_end);
  log_evaluate_save();
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
  call(&TrainerCallback::on_step_end);
  if (time_is_up()) impl_.control.should_training_stop = true;
  if (meter_->is_full()) fold_losses();
  log_evaluate_save();
  stop_when_asked();
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
  auto* const schedule = dynamic_cast<optim::LrScheduler*>(impl_.scheduler.get());
  if (schedule != nullptr && !impl_.accelerator.optimizer_step_was_skipped()) schedule->step();
}

bool TrainingRun::time_is_up() const {
  if (!plan_.max_seconds) return false;
  // Ranks have clocks of their own.
  return impl_.accelerator.process_group().broadcast_object(nlohmann::json(seconds_since(begin_))) >=
         *plan_.max_seconds;
}

void TrainingRun::log_evaluate_save() {
  if (impl_.control.should_log) log_step();
  if (impl_.control.should_evaluate) evaluate();
  if (impl_.control.should_save) save();
}

void TrainingRun::fold_losses() {
  TrainerState& state = impl_.state;
  const auto fold = meter_->fold();
  state.total_flos += sum_over_ranks(impl_.accelerator, std::exchange(flops_, 0));
  state.total_loss += fold.whole_sum;
  loss_of_run_ += fold.whole_sum;
  const bool filter = impl_.args.logging_nan_inf_filter;
  state.unlogged_loss += filter ? fold.sum : fold.whole_sum;
  state.unlogged_steps += filter ? fold.finite_steps : fold.steps;
  if (!filter || fold.finite_steps == fold.steps) return;
  impl_.logger.warning(fold.steps - fold.finite_steps, " of the ", fold.steps, " steps up to step ",
                       state.global_step,
                       " had a loss that is not finite: they are left out of the logged mean");
}

void TrainingRun::log_step() {
  TrainerState& state = impl_.state;
  if (state.global_step <= last_logged_step_) return;
  fold_losses();
  const auto steps = static_cast<double>(state.unlogged_steps);
  LogValues values{{"loss", steps > 0 ? state.unlogged_loss / steps : std::nan("")}};
  if (grad_norm_) values.emplace_back("grad_norm", *grad_norm_);
  values.emplace_back("learning_rate", learning_rate_);
  state.unlogged_loss = 0;
  state.unlogged_steps = 0;
  last_logged_step_ = state.global_step;
  trainer_.log(values);
}

void TrainingRun::evaluate() {
  const LogValues metrics = trainer_.evaluate();
  judge(metrics);
}

/// Whether this is the best evaluation so far: strictly better only.
void TrainingRun::judge(const LogValues& metrics) {
  const auto name = best_metric_name(impl_.args);
  if (!name) return;
  const auto value = LogEntry{metrics}.find(*name);
  if (!value) {
    std::string names;
    for (const auto& entry : metrics) names += (names.empty() ? "" : ", ") + entry.first;
    throw UsageError("metric_for_best_model is '" + *name +
                     "', which the evaluation does not have: there are " + names);
  }
  if (auto* const plateau = dynamic_cast<optim::ReduceLrOnPlateau*>(impl_.scheduler.get()))
    plateau->step(*value);
  metric_of_step_ = *value;
  TrainerState& state = impl_.state;
  const bool better =
      !state.best_metric ||
      (greater_metric_is_better(impl_.args) ? *value > *state.best_metric : *value < *state.best_metric);
  if (better) state.best_metric = *value;
  if (better && impl_.args.save_strategy != "no") state.best_global_step = state.global_step;
  if (impl_.args.save_strategy == "best") impl_.control.should_save = better;
}

void TrainingRun::save() {
  TrainerState& state = impl_.state;
  fold_losses();
  if (state.best_global_step) {
    const std::string best = checkpoint_name(*state.best_global_step);
    const auto folder = std::filesystem::path(impl_.args.output_dir) / best;
    if (*state.best_global_step == state.global_step || is_there(impl_.accelerator, folder)) {
      state.best_model_checkpoint = folder.string();
      checkpoints_->protect(best);
    }
  }
  for (const auto& callback : impl_.callbacks) {
    if (!callback->name().empty()) state.stateful_callbacks[callback->name()] = callback->state();
  }
  write_checkpoint();
  impl_.control.should_save = false;
  call(&TrainerCallback::on_save);
}

/// A training that is told to stop leaves a whole one in any case.
void TrainingRun::write_checkpoint() {
  if (impl_.args.save_only_model) {
    if (!preempted_) return write_weights();
    impl_.accelerator.on_main_process(
        [&] { train::remove_weights(impl_.args.output_dir, impl_.state.global_step); });
  }
  if (metric_of_step_) {
    checkpoints_->save(*metric_of_step_);
  } else {
    checkpoints_->save();
  }
}

void TrainingRun::write_weights() {
  const TrainerState& state = impl_.state;
  auto tensors = trainer_.model().parameters();
  for (auto& buffer : trainer_.model().buffers()) tensors.push_back(std::move(buffer));
  const std::string best = state.best_global_step ? checkpoint_name(*state.best_global_step) : "";
  impl_.accelerator.on_main_process([&] {
    train::save_weights_only(impl_.args.output_dir, state.global_step, tensors, files_to_add(),
                             {.total_limit = impl_.args.save_total_limit, .protect = best});
  });
}

void TrainingRun::stop_when_asked() {
  if (!impl_.accelerator.should_stop()) return;
  preempted_ = true;
  save();
  checkpoints_->wait();
  impl_.accelerator.print("preempted: saved ", impl_.args.output_dir, "/",
                          checkpoint_name(impl_.state.global_step), " at step ", impl_.state.global_step,
                          "; the same command goes on from there");
  impl_.control.should_training_stop = true;
}

TrainOutput TrainingRun::finish() {
  TrainerState& state = impl_.state;
  fold_losses();
  checkpoints_->wait();
  const std::int64_t steps = state.global_step - first_step_;
  TrainOutput output{.global_step = state.global_step,
                     .training_loss = steps > 0 ? loss_of_run_ / static_cast<double>(steps) : 0,
                     .metrics = {},
                     .preempted = preempted_};
  add_speed(output.metrics, "train", seconds_since(begin_),
            static_cast<double>(steps * state.total_batch_size), static_cast<double>(steps));
  output.metrics.emplace_back("total_flos", state.total_flos);
  output.metrics.emplace_back("train_loss", output.training_loss);
  if (!preempted_) {
    trainer_.log(output.metrics);
    load_best();
  }
  output.metrics.emplace_back("epoch", state.epoch);
  call(&TrainerCallback::on_train_end);
  impl_.in_training = false;
  return output;
}

void TrainingRun::load_best() {
  if (!impl_.args.load_best_model_at_end || !impl_.state.best_model_checkpoint) return;
  trainer_.model().load(impl_.accelerator, *impl_.state.best_model_checkpoint);
}

TrainOutput Trainer::train() { return TrainingRun(*this, *impl_).run(); }

}  // namespace lockstep
