#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::launch {

/// The trackers' files of one folder.
struct TrackerFiles {
  std::filesystem::path json_lines, csv;
  std::vector<std::filesystem::path> events;
};

/// The known files in a training's output folder and below it. Paths begin with the folder; empty: there is
/// none.
struct RunFiles {
  /// trainer_state.json and training_args.json, those of the folder first, then of checkpoints, the one that
  /// was written last first.
  std::vector<std::filesystem::path> states, arguments;
  /// train_results.json, eval_results.json and the like.
  std::vector<std::filesystem::path> results;
  /// By their folder.
  std::map<std::filesystem::path, TrackerFiles> trackers;
  /// A Trainer's ranks/rank-<rank>.json.
  std::vector<std::filesystem::path> ranks;
  /// Folders with checkpoints, and with traces of ranks.
  std::vector<std::filesystem::path> checkpoint_folders, trace_folders;
  /// The profiler's rank_<rank>.<step>.pt.trace.json.
  std::vector<std::filesystem::path> profiles;
  /// The launcher's attempt_<n>/<local rank>/error.json.
  std::vector<std::filesystem::path> errors;
  /// Folders attempt_<n>.
  std::vector<std::filesystem::path> attempts;
  /// Sentences on what was not looked at.
  std::vector<std::string> problems;

  bool is_empty() const {
    return states.empty() && results.empty() && trackers.empty() && trace_folders.empty() &&
           profiles.empty() && errors.empty();
  }
};

/// Finds them, at most five folders deep; links to folders are not followed. Where several Trainers have
/// their output folders in it, only the files of one are found: of the folder's own training, otherwise of
/// the one whose ranks wrote last. *Local*. Throws DataError if the folder cannot be read.
RunFiles find_run_files(const std::filesystem::path& folder);

/// The names that it looks for, for messages.
std::string known_run_files();

/// The sentence on files of another training: "The files in 'a' are ...".
std::string not_shown(const char* what, const std::string& folder);

/// The path as the user sees it in a report of that folder: "runs/metrics.jsonl". *Local*.
std::string path_within(const std::filesystem::path& folder, const std::filesystem::path& path);

}  // namespace lockstep::launch
