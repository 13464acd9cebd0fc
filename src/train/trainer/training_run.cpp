#include <ATen/ATen.h>
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "comm/group_observer.hpp"
#include "comm/set_up_record.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "train/graphs/side_stream.hpp"
#include "train/trainer/training_run.hpp"

namespace lockstep {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Sets a flag for a scope.
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
  const bool records = train::records_steps(trainer_);
  std::optional<train::SideStream> stream;
  if (records) stream.emplace(impl_.accelerator.device());
  const auto output = run_steps(records);
  steps_.reset();
  return output;
}

TrainOutput TrainingRun::run_steps(bool records) {
  const Raised training(impl_.in_training);
  const train::TrainingScope::Entered entered(impl_.scope);
  impl_.scope.set_accumulation(impl_.args.gradient_accumulation_steps, impl_.args.global_batch_size);
  prepare(records);
  begin_state({});
  call(&TrainerCallback::on_prepare);
  is_new_process_ = comm::is_newcomer(impl_.accelerator.process_group());
  {
    const comm::LeftOutByNewcomers left_out(impl_.accelerator.process_group());
    resume();
  }
  impl_.control.should_training_stop = false;
  if (!is_new_process_) call(&TrainerCallback::on_train_begin);
  begin_ = std::chrono::steady_clock::now();
  begin_record();
  if (!is_new_process_) {
    const comm::LeftOutByNewcomers left_out(impl_.accelerator.process_group());
    say_if_finished();
  }
  train_on_all_ranks();
  return finish();
}

/// A process that replaces a lost one goes on with its sums.
void TrainingRun::begin_record() {
  const bool is_resumed = !checkpoints_->resumed_from().empty();
  has_records_ = is_resumed || train::writes_files(impl_.args);
  record_.emplace(impl_.accelerator, impl_.args.output_dir, is_resumed || is_new_process_);
  if (is_new_process_) record_->note_recovery();
  if (has_records_) record_->write();
}

/// A resumed run has nothing to do if a limit was reached, or a callback such as early stopping has ended it.
void TrainingRun::say_if_finished() {
  const TrainerState& state = impl_.state;
  const bool at_limit = time_is_up() || is_at_limit();
  const bool is_ended =
      std::exchange(impl_.control.should_training_stop, impl_.control.should_training_stop || at_limit);
  const TrainerControl& left = state.unfinished;
  const bool has_work = left.should_log || left.should_evaluate || left.should_save || state.unfinished_step;
  if (checkpoints_->resumed_from().empty() || has_work || !(at_limit || is_ended)) return;
  // A time has no number of steps.
  const bool by_time = plan_.max_seconds.has_value();
  const std::string length = by_time ? ", with max_duration " + impl_.args.max_duration->text()
                                     : fmt::format(" of {}", state.max_steps);
  const char* const limits =
      by_time ? "raise max_duration" : "raise max_steps, num_train_epochs or max_duration";
  impl_.accelerator.print(fmt::format(
      "already finished: step {}{}. To train on, {}; to start over, set resume_from_checkpoint to "
      "never or output_dir to another folder",
      state.global_step, length,
      at_limit ? limits : "raise the patience of the callback that ended the training"));
}

/// Called before the first step. If a signal interrupts the evaluation, it is finished when training resumes.
void TrainingRun::evaluate_on_start() {
  const bool begins = impl_.state.global_step == 0 && !impl_.control.should_training_stop;
  if (!impl_.args.eval_on_start || !begins) return;
  between_steps([this] {
    const Raised raised(impl_.resumes_evaluation);
    best_metric_of(trainer_.evaluate());
  });
}

/// Prepares the loader first: it determines the accumulation steps of a global batch.
void TrainingRun::prepare(bool records) {
  auto [accelerator, args, parts] = std::tie(impl_.accelerator, impl_.args, impl_.parts);
  if (impl_.has_trained && accelerator.options().fsdp_plugin) {
    throw UsageError(
        "Trainer: train() was called a second time, but the first call left the model fully sharded. "
        "Create a new model and a new Trainer; resume_from_checkpoint continues where this one ended");
  }
  impl_.scope.forget();
  check_evaluations();
  impl_.has_trained = true;
  batches_.emplace(accelerator.prepare(trainer_.get_train_dataloader()));
  impl_.count_parameters();
  parts.model->prepare(accelerator);
  parts.model->train(true);
  const std::int64_t accumulation = accelerator.gradient_accumulation_steps();
  size_ = {.batches_per_epoch = batches_->has_size() ? std::optional(batches_->size()) : std::nullopt,
           .accumulation_steps = accumulation,
           .samples_per_step = batches_->total_batch_size() * accumulation};
  plan_ = train::make_training_plan(args, size_);
  impl_.optimizer = parts.optimizers.first;
  if (!impl_.optimizer) impl_.optimizer = trainer_.create_optimizer();
  args_in_effect_ = args;
  impl_.scheduler = parts.optimizers.second;
  note_given_options();
  if (!impl_.scheduler)
    impl_.scheduler = trainer_.create_scheduler(*impl_.optimizer, plan_.max_steps, plan_.warmup_steps);
  check_plateau();
  impl_.accelerated_optimizer.emplace(accelerator.prepare(*impl_.optimizer));
  if (impl_.scheduler) accelerator.prepare(*impl_.scheduler);
  steps_.emplace(trainer_, impl_.scope, *impl_.accelerated_optimizer, records);
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

/// Reports mistakes that would otherwise appear at the first evaluation.
void TrainingRun::check_evaluations() const {
  const TrainerComponents& parts = impl_.parts;
  if (impl_.args.eval_strategy == IntervalStrategy::no) return;
  if (!parts.eval_dataset && parts.eval_datasets.empty() && !parts.eval_stream) {
    throw UsageError(
        fmt::format("eval_strategy is {}, but there is no data set to evaluate on: give one "
                    "(--validation-file; TrainerComponents::eval_dataset), or set eval_strategy to no",
                    option_word(impl_.args.eval_strategy)));
  }
  if (const auto metric = best_metric_name(impl_.args)) check_is_known(*metric);
}

/// If metrics do not state their names in advance, the first evaluation checks them: see best_metric_of().
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
  throw UsageError("metric_for_best_model is '" + metric + "', which no evaluation returns; they return " +
                   known + ". If evaluate() is overridden and returns more, list them in metric_names()");
}

/// A plateau schedule that never gets a metric would keep its rate in silence.
void TrainingRun::check_plateau() const {
  const bool is_plateau = dynamic_cast<optim::ReduceLrOnPlateau*>(impl_.scheduler.get()) != nullptr;
  if (is_plateau && impl_.args.eval_strategy == IntervalStrategy::no)
    throw UsageError(
        "Trainer: the scheduler is a ReduceLrOnPlateau, which needs evaluations: set eval_strategy to steps "
        "or "
        "epoch");
}

/// `done` has what was done; the arguments determine what remains.
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

bool TrainingRun::is_at_limit() const {
  const TrainerState& state = impl_.state;
  const bool epochs_are_over = plan_.is_in_epochs && batches_->epoch() >= state.num_train_epochs;
  return state.global_step >= state.max_steps || epochs_are_over;
}

void TrainingRun::run_epochs() {
  while (!impl_.control.should_training_stop && !is_at_limit()) run_epoch();
}

/// Tells the callbacks, unless they have heard of it.
void TrainingRun::begin_epoch() {
  const std::int64_t epoch = batches_->epoch();
  if (epoch > begun_epoch_) call(&TrainerCallback::on_epoch_begin);
  begun_epoch_ = std::max(begun_epoch_, epoch);
}

void TrainingRun::run_epoch() {
  const std::int64_t epoch = batches_->epoch();
  impl_.control.should_epoch_stop = false;
  in_epoch_ = true;
  begin_epoch();
  const bool from_start = batches_->position() == 0;
  bool is_empty = true;
  for (auto& batch : *batches_) {
    is_empty = false;
    run_micro_batch(batch);
    if (impl_.control.should_epoch_stop || impl_.control.should_training_stop) break;
  }
  if (impl_.control.should_epoch_stop || impl_.control.should_training_stop) discard_window();
  if (preempted_) return;
  if (from_start && is_empty) {
    throw DataError(
        fmt::format("this rank gets no batch in epoch {}: the training stream is empty, or has too few files "
                    "or rows for the number of ranks.",
                    epoch));
  }
  between_steps([&] { end_epoch(epoch); });
}

/// Whether the position is behind the last batch. A stream finds out only by reading on.
bool TrainingRun::has_read_epoch() const {
  return !batches_->is_stream() && batches_->position() >= batches_->size();
}

void TrainingRun::end_epoch(std::int64_t epoch) {
  in_epoch_ = false;
  impl_.state.unfinished = {};
  impl_.state.unfinished_step = false;
  // The checkpoint of an epoch that is over continues with the next one, also if the training ends with it.
  if (impl_.control.should_epoch_stop || has_read_epoch()) batches_->set_epoch(epoch + 1);
  // Epochs may have had fewer steps than planned: this is the last step then, with what a last step does.
  if (!impl_.control.should_training_stop && is_at_limit()) impl_.state.max_steps = impl_.state.global_step;
  call(&TrainerCallback::on_epoch_end);
  log_evaluate_save();
}

/// Returns false if a signal interrupted an evaluation in `work`.
bool TrainingRun::completes(const std::function<void()>& work) {
  const Raised raised(impl_.between_steps);
  try {
    work();
    return true;
  } catch (const EvaluationInterrupted&) {
    return false;
  }
}

/// If an evaluation in `work` is interrupted, training ends here, and `work` is finished after resuming.
void TrainingRun::between_steps(const std::function<void()>& work) {
  if (completes(work)) return;
  if (impl_.control.should_log) log_step();
  impl_.control.should_log = false;
  impl_.state.unfinished = impl_.control;
  impl_.state.unfinished_step = in_epoch_;
  is_outdated_ = true;
  preempt();
}

/// Finishes what a signal interrupted after the previous run's last step, and the epoch if that ends with it.
void TrainingRun::finish_unfinished() {
  const TrainerControl left = std::exchange(impl_.state.unfinished, {});
  in_epoch_ = std::exchange(impl_.state.unfinished_step, false);
  impl_.control.should_log = left.should_log;
  impl_.control.should_evaluate = left.should_evaluate;
  impl_.control.should_save = left.should_save;
  impl_.control.should_epoch_stop = in_epoch_ && left.should_epoch_stop;
  impl_.control.should_training_stop = impl_.control.should_training_stop || left.should_training_stop;
  if (left.should_log || left.should_evaluate || left.should_save) {
    const Raised raised(impl_.resumes_evaluation);
    is_outdated_ = true;
    log_evaluate_save();
    if (is_outdated_) write_checkpoint();
  }
  const bool epoch_ends = impl_.control.should_epoch_stop || impl_.control.should_training_stop;
  if (in_epoch_ && epoch_ends) end_epoch(batches_->epoch());
}

bool TrainingRun::time_is_up() const {
  if (!plan_.max_seconds) return false;
  // The ranks' clocks differ; rank 0's is used.
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
            static_cast<double>(state.num_samples_seen - first_sample_), static_cast<double>(steps));
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
  if (has_records_) record_->write();
  call(&TrainerCallback::on_train_end);
  return output;
}

std::function<void(const std::filesystem::path&)> TrainingRun::files_to_add() {
  const std::string state = trainer_state_text(impl_.state);
  const std::string args = training_argument_table().to_json_text(args_in_effect_);
  return [state, args](const std::filesystem::path& folder) {
    write_atomically(folder / kTrainerStateFileName, state);
    write_atomically(folder / "training_args.json", args);
  };
}

}  // namespace lockstep
