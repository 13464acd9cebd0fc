#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/text.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/trainer/rank_record.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLauncher = "lockstep";

bool is_on_path(const std::string& program) {
  std::istringstream folders(find_variable(process_environment(), "PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && ::access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// A path below the working folder, if it is there, as a user would write it.
std::string short_path(const fs::path& path) {
  std::error_code unknown;
  const fs::path relative = path.lexically_relative(fs::current_path(unknown));
  return relative.empty() || relative.begin()->string() == ".." ? path.string() : relative.string();
}

/// The word that starts the launcher here.
std::string launcher() {
  if (is_on_path(kLauncher)) return kLauncher;
  std::error_code none;
  const fs::path parent = fs::read_symlink(fmt::format("/proc/{}/exe", getppid()), none);
  return !none && parent.filename() == kLauncher ? quote_for_shell(short_path(parent)) : kLauncher;
}

bool is_within(const fs::path& folder, const fs::path& path) {
  const fs::path relative =
      fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(folder).lexically_normal());
  return !relative.empty() && relative.begin()->string() != "..";
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code unknown;
    if (entry->path().filename().string().starts_with("checkpoint-") &&
        fs::exists(entry->path() / "trainer_state.json", unknown))
      return true;
  }
  return false;
}

/// Empty: there is nothing to draw.
std::string folder_to_draw(const TrainingArguments& args) {
  const fs::path output = args.output_dir;
  if (train::writes_files(args)) {
    const fs::path logs = args.logging_dir.empty() ? output / "runs" : fs::path(args.logging_dir);
    std::error_code unknown;
    if (fs::is_directory(logs, unknown)) return is_within(output, logs) ? output : logs;
  }
  return has_checkpoint(output) ? output : fs::path();
}

void print_log(CallbackContext& event) {
  std::ostringstream line;
  for (const auto& [name, value] : event.values)
    line << (line.tellp() == 0 ? "" : ", ") << "'" << name << "': " << value;
  event.trainer.accelerator().print("{", line.str(), "}");
}

/// Only the process that prints looks at the files.
void print_report_command(CallbackContext& event) {
  const auto& accelerator = event.trainer.accelerator();
  if (!accelerator.is_main_process() || event.state.log_history.empty()) return;
  const std::string command = report_command(event.args);
  if (!command.empty()) accelerator.print("report: ", command);
}

}  // namespace

std::string report_command(const TrainingArguments& args) {
  const std::string folder = folder_to_draw(args);
  return folder.empty() ? "" : fmt::format("{} report {}", launcher(), quote_for_shell(folder));
}

void PrinterCallback::on_log(CallbackContext& event) { print_log(event); }

void PrinterCallback::on_train_end(CallbackContext& event) { print_report_command(event); }

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

void ProgressCallback::on_train_end(CallbackContext& event) {
  bar_.reset();
  print_report_command(event);
}

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
