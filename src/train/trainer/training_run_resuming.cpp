// What a training takes from its checkpoint, and what the arguments of the resumed run decide instead.

#include <ATen/ops/scalar_tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "train/prepared_objects.hpp"
#include "train/rules/resumed_arguments.hpp"
#include "train/trainer/callback_states.hpp"
#include "train/trainer/training_run.hpp"
#include "train/training_scope.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kArgumentsFileName = "training_args.json";
constexpr const char* kEarlyStopping = "EarlyStoppingCallback";

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError("'" + path.string() + "' cannot be read: is the checkpoint one of a Trainer?");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Rank 0's file on every rank; with `may_lack`, "" if there is none.
std::string read_on_all(const Accelerator& accelerator, const fs::path& path, bool may_lack = false) {
  std::string text;
  accelerator.on_main_process([&] {
    if (!may_lack || fs::exists(path)) text = read_whole(path);
  });
  return accelerator.process_group().broadcast_object(text);
}

/// The arguments of the run that wrote the checkpoint; null if another version or program wrote them.
std::optional<TrainingArguments> arguments_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return training_argument_table().from_json_text(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::int64_t divide_up(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

/// The numbers of an optimizer as JSON; "" for a kind whose state cannot be saved.
std::string description_of(const torch::optim::Optimizer& optimizer) {
  const auto* const zero = dynamic_cast<const optim::ZeroRedundancyOptimizer*>(&optimizer);
  try {
    return optimizer_state(zero != nullptr ? zero->local_optimizer() : optimizer, {}).options;
  } catch (const UsageError&) {
    return "";
  }
}

void set_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (std::size_t group = 0; group < std::min(rates.size(), optimizer.param_groups().size()); ++group)
    optimizer.param_groups()[group].options().set_lr(rates[group]);
}

/// The full learning rates of an optimizer's groups; empty if its schedule does not keep them, as a plateau.
std::vector<double> full_rates_of(const torch::optim::Optimizer& optimizer,
                                  const optim::Scheduler* scheduler) {
  if (scheduler != nullptr) {
    const auto state = json::parse(scheduler->state_dict(), nullptr, /*allow_exceptions=*/false);
    const bool has_rates =
        state.is_object() && state.contains("full_rates") && state["full_rates"].is_array();
    return has_rates ? state["full_rates"].get<std::vector<double>>() : std::vector<double>();
  }
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

}  // namespace

/// Called before a schedule of the trainer's own scales the rates; one that the program gives has done so.
void TrainingRun::note_given_options() {
  given_options_.clear();
  for (const auto& group : impl_.optimizer->param_groups()) given_options_.push_back(group.options().clone());
  given_ = {description_of(*impl_.optimizer), full_rates_of(*impl_.optimizer, impl_.scheduler.get())};
  for (std::size_t group = 0; group < std::min(given_options_.size(), given_.full_rates.size()); ++group)
    given_options_[group]->set_lr(given_.full_rates[group]);
}

void TrainingRun::resume() {
  train::TrainingScope::prepared_of(impl_.accelerator).begin_epochs_anew(impl_.args.ignore_data_skip);
  checkpoints_->resume();
  const fs::path& from = checkpoints_->resumed_from();
  if (from.empty()) return;
  if (impl_.args.ignore_data_skip && !has_read_epoch()) batches_->rewind();
  const std::string text = read_on_all(impl_.accelerator, from / kTrainerStateFileName);
  const auto before =
      arguments_of(read_on_all(impl_.accelerator, from / kArgumentsFileName, /*may_lack=*/true));
  take_state(trainer_state_from(text, (from / kTrainerStateFileName).string()), before);
  find_best_beside(from, before);
  settle_hyperparameters(before);
}

void TrainingRun::take_state(TrainerState saved, const std::optional<TrainingArguments>& before) {
  const TrainerState& state = impl_.state;
  const bool is_resized = saved.total_batch_size != 0 && saved.total_batch_size != state.total_batch_size;
  if (is_resized) saved.step_offset = offset_of(saved);
  size_.step_offset = saved.step_offset;
  plan_ = train::make_training_plan(impl_.args, size_);
  if (is_resized) {
    impl_.warn(fmt::format(
        "training continues with a different global batch size: a step has {} samples ({} on each of {} "
        "ranks, {} times), and had {} when the checkpoint was written. It ends {}{}. Set "
        "global_batch_size to keep it on any number of ranks",
        state.total_batch_size, batches_->batch_size(), impl_.accelerator.num_processes(),
        size_.accumulation_steps, saved.total_batch_size,
        plan_.max_seconds ? "with max_duration " + impl_.args.max_duration->text()
                          : fmt::format("at step {}", plan_.max_steps),
        plan_.is_in_epochs ? fmt::format(", with epoch {}", plan_.num_train_epochs) : ""));
  }
  begin_best_anew(saved, before);
  begin_state(std::move(saved));
  first_step_ = state.global_step;
  first_sample_ = state.num_samples_seen;
  seconds_before_ = state.train_seconds;
  learning_rate_ = state.learning_rate;
  if (state.grad_norm) grad_norm_ = at::scalar_tensor(*state.grad_norm, at::kDouble);
  last_logged_step_ = state.global_step - state.unlogged_steps;
  for (const auto& [name, callbacks] : impl_.stateful_callbacks()) {
    const auto found = state.stateful_callbacks.find(name);
    if (found != state.stateful_callbacks.end()) train::load_states(name, callbacks, found->second);
  }
}

/// Steps done so far minus those of the new size for the same part of the training, so that it ends with its
/// epochs or samples. A length in steps stays one.
std::int64_t TrainingRun::offset_of(const TrainerState& saved) const {
  const auto& length = impl_.args.max_duration;
  if (plan_.is_in_epochs && batches_->has_size()) {
    const auto left = divide_up(batches_->size() - batches_->position(), size_.accumulation_steps);
    return saved.global_step - (batches_->epoch() + 1) * plan_.steps_per_epoch + left;
  }
  const bool in_samples = length && length->unit() == Duration::Unit::samples && impl_.args.fast_dev_run == 0;
  if (!in_samples || saved.num_samples_seen == 0) return 0;
  const auto left = std::max<std::int64_t>(std::llround(length->value()) - saved.num_samples_seen, 0);
  return saved.global_step + divide_up(left, size_.samples_per_step) - plan_.max_steps;
}

/// A best value of another metric compares with nothing.
void TrainingRun::begin_best_anew(TrainerState& saved, const std::optional<TrainingArguments>& before) const {
  const auto name = best_metric_name(impl_.args);
  if (!before || !name || !saved.best_metric) return;
  const auto name_before = best_metric_name(*before);
  const bool is_same =
      name == name_before && greater_metric_is_better(impl_.args) == greater_metric_is_better(*before);
  if (is_same) return;
  const auto describe = [](const std::optional<std::string>& metric, bool greater) {
    return metric ? fmt::format("{} (the {} the better)", *metric, greater ? "greater" : "less")
                  : "no metric";
  };
  impl_.warn("the best model is determined by ", describe(name, greater_metric_is_better(impl_.args)),
             " now, and was by ", describe(name_before, greater_metric_is_better(*before)),
             " when the checkpoint was written: the search restarts with the next evaluation");
  saved.best_metric.reset();
  saved.best_global_step.reset();
  saved.best_model_checkpoint.reset();
  saved.stateful_callbacks.erase(kEarlyStopping);
}

/// The best checkpoint of this run is beside the one that it resumes from, wherever that is now. One that the
/// earlier run had itself taken from another folder is still there.
void TrainingRun::find_best_beside(const fs::path& checkpoint,
                                   const std::optional<TrainingArguments>& before) {
  TrainerState& state = impl_.state;
  written_[state.global_step] = checkpoint;
  if (!state.best_model_checkpoint) return;
  const fs::path stored = *state.best_model_checkpoint;
  const fs::path beside = checkpoint.parent_path() / stored.filename();
  const bool was_beside =
      before && stored.parent_path().lexically_normal() == fs::path(before->output_dir).lexically_normal();
  const bool is_stored_there = impl_.accelerator.on_main_process([&] { return fs::exists(stored); });
  if (was_beside || !is_stored_there) state.best_model_checkpoint = beside.string();
  checkpoints_->protect(stored.filename().string());
}

/// The checkpoint has replaced the optimizer's numbers: says which, or restores the given ones.
void TrainingRun::settle_hyperparameters(const std::optional<TrainingArguments>& before) {
  const TrainingArguments& args = impl_.args;
  const auto rates = full_rates_of(*impl_.optimizer, impl_.scheduler.get());
  auto changes = train::changed_options(given_, {description_of(*impl_.optimizer), rates});
  std::vector<std::string> others{"seed"};
  if (rates.empty()) others.emplace_back("learning_rate");
  for (const auto& name : others) {
    if (!before) break;
    if (auto change = train::changed_argument(name, args, *before)) changes.push_back(std::move(*change));
  }
  const bool overrides = args.override_on_resume && !changes.empty();
  if (overrides) {
    for (std::size_t group = 0; group < given_options_.size(); ++group)
      impl_.optimizer->param_groups()[group].set_options(given_options_[group]->clone());
    if (before && before->seed != args.seed)
      impl_.accelerator.set_seed(args.seed, /*device_specific=*/true, args.full_determinism);
  } else {
    args_in_effect_ = train::arguments_in_effect(args, changes, before);
  }
  if (overrides || size_.step_offset != 0) begin_schedule(/*keep_rates=*/!overrides);
  if (changes.empty()) return;
  impl_.accelerator.print(overrides
                              ? "override_on_resume: the given arguments replace the checkpoint's:\n"
                              : "the checkpoint overrides these arguments (override_on_resume takes the "
                                "given ones):\n",
                          train::argument_table_text(changes));
}

/// The schedule for the length that the training has now, at the step where it is. A scheduler takes the
/// optimizer's rates at its construction as the full ones.
void TrainingRun::begin_schedule(bool keep_rates) {
  if (!impl_.scheduler) return;
  std::string text = impl_.scheduler->state_dict();
  std::vector<double> rates;
  for (const auto& options : given_options_) rates.push_back(options->get_lr());
  if (keep_rates) {
    rates = full_rates_of(*impl_.optimizer, impl_.scheduler.get());
  } else if (auto state = json::parse(text, nullptr, /*allow_exceptions=*/false); state.is_object()) {
    for (const char* key : {"full_rates", "rates"}) {
      if (state.contains(key)) state[key] = rates;
    }
    text = json_text(state);
  }
  if (impl_.parts.optimizers.second) return impl_.scheduler->load_state_dict(text);
  set_rates(*impl_.optimizer, rates);
  std::shared_ptr<optim::Scheduler> next =
      trainer_.create_scheduler(*impl_.optimizer, plan_.max_steps, plan_.warmup_steps);
  if (!next) return;
  next->load_state_dict(text);
  impl_.scope.replace_scheduler(*impl_.scheduler, *next);
  impl_.scheduler = std::move(next);
}

}  // namespace lockstep
