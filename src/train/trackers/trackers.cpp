#include "lockstep/train/trackers.hpp"

#include <algorithm>

#include "core/file_system.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/mlflow_tracker.hpp"

namespace lockstep {
namespace {

std::unique_ptr<Tracker> make_tracker(const std::string& name, const std::filesystem::path& folder) {
  if (name == "jsonl") return make_json_lines_tracker(folder);
  if (name == "csv") return make_csv_tracker(folder);
  if (name == "tensorboard") return make_tensorboard_tracker(folder);
  if (name == "mlflow") return make_mlflow_tracker(folder, mlflow_options(process_environment(), folder));
  throw UsageError("log_with: '" + name +
                   "' is not a tracker: expected jsonl, csv, tensorboard or mlflow. Others are "
                   "made by the program and given to Trackers::add.");
}

}  // namespace

Trackers::Trackers(const TrackerOptions& options) {
  if (options.log_with.empty()) return;
  file_system::make_folders(options.folder);
  for (const auto& name : options.log_with) add(make_tracker(name, options.folder));
  if (options.resume_at) resume_at(*options.resume_at);
}

std::unique_ptr<Tracker> Trackers::remove(const Tracker* tracker) {
  const auto found =
      std::ranges::find_if(trackers_, [tracker](const auto& one) { return one.get() == tracker; });
  if (found == trackers_.end()) return nullptr;
  auto removed = std::move(*found);
  trackers_.erase(found);
  return removed;
}

void Trackers::log(const LogValues& values, std::int64_t step) {
  for (const auto& tracker : trackers_) tracker->log(values, step);
}

void Trackers::log_text(const std::string& name, const std::string& text, std::int64_t step) {
  for (const auto& tracker : trackers_) tracker->log_text(name, text, step);
}

void Trackers::log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) {
  for (const auto& tracker : trackers_) tracker->log_histogram(name, histogram, step);
}

void Trackers::log_hyperparameters(const HyperParameters& parameters,
                                   const std::vector<std::string>& metrics) {
  for (const auto& tracker : trackers_) tracker->log_hyperparameters(parameters, metrics);
}

void Trackers::resume_at(std::int64_t step) {
  for (const auto& tracker : trackers_) tracker->resume_at(step);
}

void Trackers::finish() {
  for (const auto& tracker : trackers_) tracker->finish();
}

}  // namespace lockstep
