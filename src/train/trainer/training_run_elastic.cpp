// How a training goes on when a lost rank was replaced: from what its last step has left.

#include <ATen/ops/scalar_tensor.h>
#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/group_observer.hpp"
#include "lockstep/train/elastic.hpp"
#include "train/elastic/elastic_run.hpp"
#include "train/trainer/callback_states.hpp"
#include "train/trainer/training_run.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

json json_of(const TrainerControl& control) {
  return json::array({control.should_training_stop, control.should_epoch_stop, control.should_save,
                      control.should_evaluate, control.should_log});
}

TrainerControl control_from(const json& value) {
  return {.should_training_stop = value.at(0).get<bool>(),
          .should_epoch_stop = value.at(1).get<bool>(),
          .should_save = value.at(2).get<bool>(),
          .should_evaluate = value.at(3).get<bool>(),
          .should_log = value.at(4).get<bool>()};
}

}  // namespace

// A step is committed when all that it computes is there: weights, schedule, losses of all ranks, counts.
// What follows it (the callbacks' end of the step, logs, evaluations, checkpoints, the end of an epoch) is
// done again after a recovery, by all ranks, from the values that the commit has kept; DeliveredEvents keeps
// callbacks from hearing of it twice. The losses of the ranks are added before the optimizer steps, not at
// the next log: a rank that is lost takes nothing along. That is one small all-reduce a step.

void TrainingRun::train_on_all_ranks() {
  const Accelerator& accelerator = impl_.accelerator;
  if (lockstep::is_elastic() && accelerator.num_processes() > 1 && size_.step_offset != 0) {
    accelerator.print(
        "lockstep: lost ranks will not be replaced (--max-recoveries): the training was resumed with another "
        "global batch size");
    return go_on();
  }
  is_elastic_ = train::ElasticRun::will_recover(accelerator);
  train::TrainingScope::add_elastic_part(accelerator, *this);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) {
    train::TrainingScope::remove_elastic_part(accelerator, *this);
    impl_.delivered = {};
    impl_.refuse_recoveries = nullptr;
  });
  note_commit();
  bool is_first = true;
  run_elastic(accelerator, [&](ElasticState& state) {
    if (is_elastic_ && std::exchange(is_first, false))
      impl_.refuse_recoveries = [&state](const std::string& why) { state.refuse_recoveries(why); };
    go_on();
  });
}

/// From the last commit, which may be that of an earlier run, or of another process.
void TrainingRun::go_on() {
  discard_window();
  metric_of_step_.reset();
  preempted_ = false;
  const bool is_new = std::exchange(is_new_process_, false);
  if (is_new) {
    const std::int64_t step = impl_.state.global_step;
    // What the lost process has written at this step is written again, except by an earlier run.
    const bool wrote = !committed_.begins || (step == 0 && impl_.args.eval_on_start);
    train::TrainingScope::drop_tracked_after(impl_.accelerator, wrote ? step - 1 : step);
    call(&TrainerCallback::on_train_begin);
  }
  // What is left of a step belongs to an epoch that has begun.
  if (in_epoch_ || impl_.state.unfinished_step) begin_epoch();
  // The others have not heard of it.
  if (is_new) impl_.control = committed_.control;
  if (is_elastic_) impl_.delivered.begin(impl_.state.global_step);
  if (committed_.begins) {
    between_steps([this] { finish_unfinished(); });
    evaluate_on_start();
  } else {
    end_step();
    const bool epoch_ends = impl_.control.should_epoch_stop || impl_.control.should_training_stop;
    if (!preempted_ && in_epoch_ && epoch_ends) between_steps([this] { end_epoch(batches_->epoch()); });
  }
  run_epochs();
}

/// Adds up what the ranks have of this step.
void TrainingRun::share_step() {
  const auto counts = meter_->share_step({std::exchange(flops_, 0), std::exchange(samples_, 0)});
  impl_.state.total_flos += counts[0];
  impl_.state.num_samples_seen += static_cast<std::int64_t>(counts[1]);
}

void TrainingRun::commit_step() {
  if (is_elastic_) {
    note_commit();
    committed_.begins = false;
    impl_.delivered.begin(impl_.state.global_step);
  }
  train::TrainingScope::commit(impl_.accelerator);
}

/// The log only grows, so that its length is enough.
void TrainingRun::note_commit() {
  if (!is_elastic_) return;
  TrainerState& state = impl_.state;
  auto log = std::exchange(state.log_history, {});
  committed_.state = state;
  committed_.log_entries = log.size();
  state.log_history = std::move(log);
  committed_.state.stateful_callbacks.clear();
  for (const auto& [name, callbacks] : impl_.stateful_callbacks())
    committed_.state.stateful_callbacks[name] = train::state_of(callbacks);
  committed_.control = impl_.control;
  committed_.losses = meter_->shared_losses();
  committed_.last_logged_step = last_logged_step_;
  committed_.loss_of_run = loss_of_run_;
  committed_.learning_rate = learning_rate_;
  committed_.grad_norm = grad_norm_;
  committed_.in_epoch = in_epoch_;
  committed_.is_outdated = is_outdated_;
  committed_.time_is_over = time_is_over_;
}

json TrainingRun::elastic_state() const {
  TrainerState state = committed_.state;
  const auto& log = impl_.state.log_history;
  state.log_history.assign(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(committed_.log_entries));
  json written = json::array();
  for (const auto& [step, path] : written_) written.push_back(json::array({step, path.string()}));
  json result{{"state", trainer_state_text(state)},
              {"begins", committed_.begins},
              {"control", json_of(committed_.control)},
              {"losses", committed_.losses},
              {"last_logged_step", committed_.last_logged_step},
              {"loss_of_run", committed_.loss_of_run},
              {"learning_rate", committed_.learning_rate},
              {"in_epoch", committed_.in_epoch},
              {"is_outdated", committed_.is_outdated},
              {"time_is_over", committed_.time_is_over},
              {"written", std::move(written)},
              {"arguments", training_argument_table().to_json_text(args_in_effect_)},
              {"first_step", first_step_},
              {"first_sample", first_sample_},
              {"seconds", train_seconds()}};
  if (committed_.grad_norm.defined()) result["grad_norm"] = committed_.grad_norm.item<double>();
  return result;
}

void TrainingRun::take_elastic_state(const json& taken) {
  begin_state(trainer_state_from(taken.at("state").get<std::string>(), "the state of another rank"));
  impl_.control = control_from(taken.at("control"));
  meter_->set_shared_losses(taken.at("losses").get<std::vector<double>>());
  last_logged_step_ = taken.at("last_logged_step").get<std::int64_t>();
  loss_of_run_ = taken.at("loss_of_run").get<double>();
  learning_rate_ = taken.at("learning_rate").get<double>();
  in_epoch_ = taken.at("in_epoch").get<bool>();
  is_outdated_ = taken.at("is_outdated").get<bool>();
  time_is_over_ = taken.at("time_is_over").get<bool>();
  grad_norm_ = taken.contains("grad_norm") ? at::scalar_tensor(taken["grad_norm"].get<double>(), at::kDouble)
                                           : at::Tensor();
  flops_ = samples_ = 0;
  if (is_new_process_) take_from_others(taken);
  const bool begins = taken.at("begins").get<bool>();
  note_commit();
  committed_.begins = begins;
  // The callbacks of a rank that stayed have heard of what follows the step; those of a new process have not.
  committed_.state.stateful_callbacks = impl_.state.stateful_callbacks;
}

/// What a process has besides, which survivors keep.
void TrainingRun::take_from_others(const json& taken) {
  for (const auto& entry : taken.at("written"))
    written_[entry.at(0).get<std::int64_t>()] = entry.at(1).get<std::string>();
  args_in_effect_ = training_argument_table().from_json_text(taken.at("arguments").get<std::string>());
  first_step_ = taken.at("first_step").get<std::int64_t>();
  first_sample_ = taken.at("first_sample").get<std::int64_t>();
  seconds_before_ = taken.at("seconds").get<double>();
  begin_ = std::chrono::steady_clock::now();
  const TrainerState& state = impl_.state;
  if (state.best_model_checkpoint)
    checkpoints_->protect(std::filesystem::path(*state.best_model_checkpoint).filename().string());
  for (const auto& [name, callbacks] : impl_.stateful_callbacks()) {
    const auto found = state.stateful_callbacks.find(name);
    if (found != state.stateful_callbacks.end()) train::load_states(name, callbacks, found->second);
  }
}

}  // namespace lockstep
