#include <filesystem>
#include <string>

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

std::string grouped(const std::string& name) {
  for (const std::string group : {"eval", "test"}) {
    if (name.starts_with(group + "_")) return group + "/" + name.substr(group.size() + 1);
  }
  return "train/" + name;
}

/// The arguments that are logged as the run's hyper-parameters.
HyperParameters hyper_parameters(const TrainingArguments& args) {
  return {{"learning_rate", args.learning_rate},
          {"num_train_epochs", args.num_train_epochs},
          {"per_device_train_batch_size", args.per_device_train_batch_size},
          {"gradient_accumulation_steps", args.gradient_accumulation_steps},
          {"weight_decay", args.weight_decay},
          {"optim", args.optim},
          {"lr_scheduler_type", args.lr_scheduler_type},
          {"seed", static_cast<std::int64_t>(args.seed)}};
}

}  // namespace

void TrackerCallback::open(CallbackContext& event, bool for_training) {
  const auto& args = event.args;
  auto trackers = args.report_to;
  std::erase(trackers, "none");
  if (trackers.empty()) return;
  const std::filesystem::path folder = args.logging_dir.empty()
                                           ? std::filesystem::path(args.output_dir) / "runs"
                                           : std::filesystem::path(args.logging_dir);
  // A training from its beginning replaces what an earlier one has left: one that was killed before its first
  // checkpoint, or that is not resumed. Steps after a checkpoint are dropped when it is loaded.
  const bool begins = for_training && event.state.global_step == 0;
  trackers_ = event.trainer.accelerator().init_run_trackers(
      {.log_with = std::move(trackers),
       .folder = args.run_name.empty() ? folder : folder / args.run_name,
       .resume_at = begins ? std::optional<std::int64_t>(0) : std::nullopt},
      for_training ? hyper_parameters(args) : HyperParameters());
}

void TrackerCallback::on_prepare(CallbackContext& event) { on_train_end(event); }

void TrackerCallback::on_train_begin(CallbackContext& event) { open(event, /*for_training=*/true); }

void TrackerCallback::on_log(CallbackContext& event) {
  if (!is_open()) open(event, /*for_training=*/false);
  LogValues values;
  for (const auto& [name, value] : event.values) values.emplace_back(grouped(name), value);
  event.trainer.accelerator().log(values, event.state.global_step);
}

void TrackerCallback::on_train_end(CallbackContext& /*event*/) {
  if (trackers_) trackers_->close();
}

}  // namespace lockstep
