#include "report/trainer_files.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"
#include "report/lenient_json.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double time_of_change(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return kUnknown;
  return static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

/// The object of a file; null, with a problem of the run, if it cannot be read.
json object_in(const fs::path& path, RunRecord& run) {
  try {
    json document = read_python_json(path);
    if (document.is_object()) return document;
    throw DataError(fmt::format("'{}' is not a JSON object.", path.string()));
  } catch (const DataError& error) {
    run.problems.emplace_back(error.what());
  }
  return nullptr;
}

/// A whole state has a step and a history; others are named.
json state_in(const fs::path& path, RunRecord& run) {
  json state = object_in(path, run);
  if (state.is_null() || (number_at(state, "global_step") && state.contains("log_history"))) return state;
  run.problems.push_back(
      fmt::format("'{}' is not a trainer's state: it has no global_step and log_history.", path.string()));
  return nullptr;
}

/// The folder's own is written when the training ends, so it may be of an earlier run than the newest
/// checkpoint, which may have begun anew. Copies may have lost their times.
bool is_newer(const fs::path& checkpoint, double step, const fs::path& own, double own_step) {
  const double written = time_of_change(checkpoint), own_written = time_of_change(own);
  return written != own_written ? written > own_written : step > own_step;
}

std::pair<json, fs::path> newest_state(const RunFiles& files, RunRecord& run) {
  std::pair<json, fs::path> newest;
  for (const auto& path : files.states) {
    json state = state_in(path, run);
    if (state.is_null()) continue;
    const bool is_first = newest.first.is_null();
    if (is_first || is_newer(path, *number_at(state, "global_step"), newest.second,
                             *number_at(newest.first, "global_step")))
      newest = {std::move(state), path};
    if (path.parent_path() != run.folder) break;
  }
  return newest;
}

void add_history(RunLog& log, const json& history) {
  std::size_t left_out = 0;
  for (const auto& entry : history) {
    const auto step = number_at(entry, "step");
    if (!step || !std::isfinite(*step)) {
      ++left_out;
      continue;
    }
    for (const auto& [name, value] : entry.items()) {
      const auto number = name == "step" ? std::nullopt : number_in(value);
      if (number) log.add(name, {*step, *number, kUnknown});
    }
  }
  if (left_out > 0)
    log.add_problem(fmt::format("{}: {} entries of its log_history have no step, and were left out.",
                                log.source(), left_out));
}

void take_progress(const json& state, RunRecord& run) {
  run.global_step = number_at(state, "global_step");
  run.max_steps = number_at(state, "max_steps");
  run.num_train_epochs = number_at(state, "num_train_epochs");
  // A training that ends by its time states more steps than any can make.
  constexpr double kEndless = 0x1p61;
  if (run.max_steps.value_or(0) >= kEndless) run.max_steps.reset(), run.num_train_epochs.reset();
  run.epoch = number_at(state, "epoch");
  run.best_metric = number_at(state, "best_metric");
  run.best_step = number_at(state, "best_global_step");
  const json::json_pointer own("/stateful_callbacks/LockstepTrainer/attributes");
  const json attributes = state.contains(own) ? state.at(own) : json();
  run.samples_seen = number_at(attributes, "num_samples_seen");
  run.samples_per_step = number_at(attributes, "total_batch_size");
  run.train_seconds = number_at(attributes, "train_seconds");
}

void read_arguments(const RunFiles& files, RunRecord& run) {
  for (const auto& path : files.arguments) {
    const json arguments = object_in(path, run);
    if (arguments.is_null()) continue;
    for (const auto& [name, value] : arguments.items()) run.arguments[utf8_text(name)] = plain_text(value);
    run.arguments_source = path_within(run.folder, path);
    run.sources.push_back(run.arguments_source);
    return;
  }
}

void add_checkpoint(const Checkpoint& checkpoint, RunRecord& run) {
  const auto& info = checkpoint.info;
  const double time = time_of_change(checkpoint.path / kManifestFileName);
  std::string text = path_within(run.folder, checkpoint.path);
  if (info.sequence == 0) {
    run.problems.push_back(
        fmt::format("{}: its manifest cannot be read; see lockstep checkpoint verify.", text));
    return;
  }
  run.world_size = info.world_size;
  run.lockstep_version = info.lockstep_version;
  run.libtorch_version = info.libtorch_version;
  run.started_from = info.started_from;
  run.events.push_back({RunEvent::Kind::checkpoint, static_cast<double>(info.step), time, std::move(text)});
}

/// Oldest first, so that the run gets the newest one's number of ranks and versions.
void read_checkpoints(const RunFiles& files, RunRecord& run) {
  for (const auto& folder : files.checkpoint_folders) {
    try {
      auto checkpoints = list_checkpoints(folder);
      std::ranges::sort(checkpoints, {}, [](const Checkpoint& each) { return each.info.sequence; });
      for (const auto& checkpoint : checkpoints) add_checkpoint(checkpoint, run);
    } catch (const Error& error) {
      run.problems.emplace_back(error.what());
    }
  }
}

/// Final numbers that no history has: "eval_loss" of eval_results.json.
void add_results(const RunFiles& files, RunRecord& run, RunLog& log) {
  for (const auto& path : files.results) {
    const json results = object_in(path, run);
    if (results.is_null()) continue;
    run.sources.push_back(path_within(run.folder, path));
    for (const auto& [name, value] : results.items()) {
      const auto number = number_in(value);
      if (number && name != "epoch" && !log.series().contains(name))
        log.add(name, {run.global_step.value_or(0), *number, kUnknown});
    }
  }
}

}  // namespace

RunLog read_trainer_files(const RunFiles& files, RunRecord& run) {
  const auto [state, path] = newest_state(files, run);
  RunLog log(path.empty() ? "*_results.json" : path_within(run.folder, path));
  if (!state.is_null()) {
    run.sources.push_back(log.source());
    take_progress(state, run);
    add_history(log, state.at("log_history"));
  }
  read_arguments(files, run);
  read_checkpoints(files, run);
  add_results(files, run, log);
  return log;
}

}  // namespace lockstep::launch
