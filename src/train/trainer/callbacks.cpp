#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <cmath>
#include <filesystem>
#include <utility>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

void print_log(CallbackContext& event) {
  std::ostringstream line;
  for (const auto& [name, value] : event.values)
    line << (line.tellp() == 0 ? "" : ", ") << "'" << name << "': " << value;
  event.trainer.accelerator().print("{", line.str(), "}");
}

}  // namespace

void PrinterCallback::on_log(CallbackContext& event) { print_log(event); }

void ProgressCallback::on_train_begin(CallbackContext& event) {
  const bool known = !(event.args.max_duration && event.args.max_duration->is_time());
  bar_.emplace(event.trainer.accelerator().world(),
               ProgressBarOptions{.description = "training",
                                  .total = known ? static_cast<std::uint64_t>(event.state.max_steps) : 0,
                                  .initial = static_cast<std::uint64_t>(event.state.global_step)});
  begin_ = std::chrono::steady_clock::now();
  first_sample_ = event.state.num_samples_seen;
}

void ProgressCallback::on_step_end(CallbackContext& /*event*/) { bar_->advance(); }

void ProgressCallback::on_log(CallbackContext& event) {
  const LogEntry entry{event.values};
  if (bar_) {
    if (const auto loss = entry.find("loss")) bar_->set_metric("loss", *loss);
    if (const auto rate = entry.find("learning_rate")) bar_->set_metric("lr", *rate);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    const auto samples = static_cast<double>(event.state.num_samples_seen - first_sample_);
    // After loss and learning rate, which a narrow terminal shows first.
    if (entry.find("loss") && seconds.count() > 0) bar_->set_metric("samples/s", samples / seconds.count());
    bar_->clear();
  }
  print_log(event);
}

void ProgressCallback::on_train_end(CallbackContext& /*event*/) { bar_.reset(); }

void ProfilerCallback::on_train_begin(CallbackContext& event) {
  ProfileOptions options = options_;
  options.output_trace_dir = std::filesystem::path(event.args.output_dir) / options.output_trace_dir;
  profiler_ = std::make_unique<Profiler>(options, event.trainer.accelerator().process_index());
}

void ProfilerCallback::on_step_end(CallbackContext&) {
  if (profiler_) profiler_->step();
}

void ProfilerCallback::on_train_end(CallbackContext&) {
  if (profiler_) profiler_->stop();
  profiler_.reset();
}

}  // namespace lockstep
