#include <filesystem>

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

/// The numbers by which a run is judged, as its hyper-parameters.
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

void print_log(CallbackContext& event) {
  std::ostringstream line;
  for (const auto& [name, value] : event.values)
    line << (line.tellp() == 0 ? "" : ", ") << "'" << name << "': " << value;
  event.trainer.accelerator().print("{", line.str(), "}");
}

}  // namespace

void TrackerCallback::open(CallbackContext& event, bool for_training) {
  const auto& args = event.args;
  if (args.report_to.empty()) return;
  const std::filesystem::path folder = args.logging_dir.empty()
                                           ? std::filesystem::path(args.output_dir) / "runs"
                                           : std::filesystem::path(args.logging_dir);
  // Steps of a job that was killed before its first checkpoint; later ones are a checkpoint's to know.
  const bool drops = for_training && args.resume_from_checkpoint == "auto" && event.state.global_step == 0;
  event.trainer.accelerator().init_trackers(
      {.log_with = args.report_to,
       .folder = args.run_name.empty() ? folder : folder / args.run_name,
       .resume_at = drops ? std::optional<std::int64_t>(0) : std::nullopt},
      for_training ? hyper_parameters(args) : HyperParameters());
  is_open_ = true;
}

void TrackerCallback::on_prepare(CallbackContext& event) {
  if (is_open_) on_train_end(event);
}

void TrackerCallback::on_train_begin(CallbackContext& event) { open(event, /*for_training=*/true); }

void TrackerCallback::on_log(CallbackContext& event) {
  if (!is_open_) open(event, /*for_training=*/false);
  LogValues values;
  for (const auto& [name, value] : event.values) values.emplace_back(grouped(name), value);
  event.trainer.accelerator().log(values, event.state.global_step);
}

void TrackerCallback::on_train_end(CallbackContext& event) {
  event.trainer.accelerator().end_training();
  is_open_ = false;
}

void PrinterCallback::on_log(CallbackContext& event) { print_log(event); }

void ProgressCallback::on_train_begin(CallbackContext& event) {
  const bool known = !(event.args.max_duration && event.args.max_duration->is_time());
  bar_.emplace(event.trainer.accelerator().world(),
               ProgressBarOptions{.description = "training",
                                  .total = known ? static_cast<std::uint64_t>(event.state.max_steps) : 0,
                                  .initial = static_cast<std::uint64_t>(event.state.global_step)});
  begin_ = std::chrono::steady_clock::now();
  has_logged_ = false;
  first_step_ = event.state.global_step;
}

void ProgressCallback::on_step_end(CallbackContext& event) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const std::int64_t samples = (event.state.global_step - first_step_) * event.state.total_batch_size;
  // Behind loss and learning rate, which a narrow terminal shows first.
  if (has_logged_ && seconds.count() > 0)
    bar_->set_metric("samples/s", static_cast<double>(samples) / seconds.count());
  bar_->advance();
}

void ProgressCallback::on_log(CallbackContext& event) {
  const LogEntry entry{event.values};
  if (bar_) {
    if (const auto loss = entry.find("loss")) bar_->set_metric("loss", *loss);
    if (const auto rate = entry.find("learning_rate")) bar_->set_metric("lr", *rate);
    has_logged_ = has_logged_ || entry.find("loss");
    bar_->clear();
  }
  print_log(event);
}

void ProgressCallback::on_train_end(CallbackContext& /*event*/) { bar_.reset(); }

}  // namespace lockstep
