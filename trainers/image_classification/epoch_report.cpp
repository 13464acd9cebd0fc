#include "epoch_report.hpp"

#include <fmt/core.h>

#include <cmath>

#include "lockstep/core/error.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

using lockstep::CallbackContext;

/// How often the bar reads the sums: reading synchronizes with the device.
constexpr std::uint64_t kStepsBetweenReadings = 10;

void end_when_done(CallbackContext& event) {
  const bool by_epochs = event.args.max_steps < 0 && !event.args.max_duration;
  if (by_epochs && event.state.epoch >= event.args.num_train_epochs)
    event.control.should_training_stop = true;
}

}  // namespace

void EpochReport::on_prepare(CallbackContext& event) {
  event.trainer.accelerator().register_for_checkpointing("tally", tally_);
}

void EpochReport::on_train_begin(CallbackContext& event) {
  tally_.begin_training();
  end_when_done(event);
}

void EpochReport::on_epoch_begin(CallbackContext& event) {
  const auto& [args, state, control, trainer, values] = event;
  const double steps = std::ceil(static_cast<double>(images_) / static_cast<double>(state.total_batch_size));
  const double begun = std::floor(state.epoch);
  bar_.emplace(trainer.accelerator().world(),
               lockstep::ProgressBarOptions{
                   .description = fmt::format("epoch {:.0f}", begun + 1),
                   .total = static_cast<std::uint64_t>(steps),
                   .initial = static_cast<std::uint64_t>(std::llround((state.epoch - begun) * steps)),
                   .enabled = !args.disable_tqdm});
}

void EpochReport::on_step_begin(CallbackContext& /*event*/) { tally_.begin_step(); }
void EpochReport::on_pre_optimizer_step(CallbackContext& /*event*/) { tally_.share_step(); }
void EpochReport::on_optimizer_step(CallbackContext& /*event*/) { tally_.keep_step(); }

void EpochReport::on_step_end(CallbackContext& event) {
  tally_.end_step(event.state.global_step);
  if (!bar_) return;
  const bool is_last = event.state.epoch == std::floor(event.state.epoch);
  if ((bar_->count() + 1) % kStepsBetweenReadings == 0 || is_last) {
    const double loss = tally_.loss();
    if (!std::isfinite(loss)) {
      throw lockstep::Error(
          fmt::format("rank {}: the loss is {:.4f}: the training has diverged; try a smaller --learning-rate",
                      event.trainer.accelerator().process_index(), loss));
    }
    bar_->set_metric("loss", loss);
    bar_->set_metric("accuracy", tally_.accuracy());
  }
  bar_->advance();
}

void EpochReport::on_epoch_end(CallbackContext& event) {
  bar_.reset();
  end_when_done(event);
  if (event.args.eval_strategy == lockstep::IntervalStrategy::no) print(event);
}

void EpochReport::on_evaluate(CallbackContext& event) {
  if (lockstep::LogEntry{event.values}.find("eval_loss") && event.state.global_step > 0) print(event);
}

void EpochReport::on_train_end(CallbackContext& /*event*/) { bar_.reset(); }

void EpochReport::print(const CallbackContext& event) {
  const Tally all = tally_.of_all_ranks();
  tally_.clear();
  std::string line = fmt::format("epoch {:.0f}: loss {:.4f}, accuracy {:.4f}", std::ceil(event.state.epoch),
                                 all.loss(), all.accuracy());
  const lockstep::LogEntry metrics{event.values};
  if (const auto loss = metrics.find("eval_loss")) line += fmt::format(", val_loss {:.4f}", *loss);
  if (const auto accuracy = metrics.find("eval_accuracy"))
    line += fmt::format(", val_accuracy {:.4f}", *accuracy);
  if (bar_) bar_->clear();
  event.trainer.accelerator().print(line);
}
