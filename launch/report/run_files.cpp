#include "report/run_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/error.hpp"
#include "report/number_words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// logs/<run id>/attempt_0/1/error.json.
constexpr int kDeepestFolder = 5;
constexpr std::size_t kMostEntries = 50'000;

bool is_attempt(const fs::path& folder) { return folder.filename().string().starts_with("attempt_"); }

class FileSearch {
 public:
  explicit FileSearch(RunFiles& files) : files_(files) {}

  void search(const fs::path& folder, int depth) {
    std::error_code failure;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      if (++entries_ > kMostEntries) break;
      entries.push_back(*entry);
    }
    if (failure && depth == 0)
      throw DataError(fmt::format("cannot read the folder '{}': {}.", folder.string(), failure.message()));
    if (failure)
      files_.problems.push_back(fmt::format("'{}' cannot be read: {}.", folder.string(), failure.message()));
    std::ranges::sort(entries, {}, [](const fs::directory_entry& entry) { return entry.path(); });
    for (const auto& entry : entries) {
      std::error_code unknown;
      if (entry.is_directory(unknown) && !entry.is_symlink(unknown)) {
        enter(entry.path(), depth + 1);
      } else if (entry.is_regular_file(unknown)) {
        add(entry.path());
      }
    }
  }

  bool saw_too_many() const { return entries_ > kMostEntries; }

 private:
  void enter(const fs::path& folder, int depth) {
    const std::string name = folder.filename();
    if (name.starts_with('.') || depth > kDeepestFolder) return;
    if (is_attempt(folder)) files_.attempts.push_back(folder);
    if (!step_in_name(name)) return search(folder, depth);
    add_once(files_.checkpoint_folders, folder.parent_path());
    for (const char* known : {"trainer_state.json", "training_args.json"}) {
      if (std::error_code failure; fs::is_regular_file(folder / known, failure)) add(folder / known);
    }
  }

  void add(const fs::path& path) {
    const std::string name = path.filename();
    const fs::path folder = path.parent_path();
    if (name == "trainer_state.json") files_.states.push_back(path);
    if (name == "training_args.json") files_.arguments.push_back(path);
    if (name.ends_with("_results.json")) files_.results.push_back(path);
    if (folder.filename() == "ranks" && name.starts_with("rank-") && name.ends_with(".json"))
      files_.ranks.push_back(path);
    if (name == "metrics.jsonl") files_.trackers[folder].json_lines = path;
    if (name == "metrics.csv") files_.trackers[folder].csv = path;
    if (name.starts_with("events.out.tfevents.")) files_.trackers[folder].events.push_back(path);
    if (name.starts_with("trace-rank-") && name.ends_with(".json")) add_once(files_.trace_folders, folder);
    if (name.starts_with("rank_") && name.ends_with(".pt.trace.json")) files_.profiles.push_back(path);
    if (name == "error.json" && is_attempt(folder.parent_path())) files_.errors.push_back(path);
  }

  static void add_once(std::vector<fs::path>& list, const fs::path& path) {
    if (list.empty() || list.back() != path) list.push_back(path);
  }

  RunFiles& files_;
  std::size_t entries_ = 0;
};

/// Of each checkpoint with a manifest. A training that began anew in the folder has smaller steps.
std::map<fs::path, std::int64_t> sequences_in(const std::vector<fs::path>& folders) {
  std::map<fs::path, std::int64_t> sequences;
  for (const auto& folder : folders) {
    try {
      for (const auto& checkpoint : list_checkpoints(folder))
        sequences[checkpoint.path] = checkpoint.info.sequence;
    } catch (const Error&) {
      continue;  // read_checkpoints() tells.
    }
  }
  return sequences;
}

/// The folder's own first, then checkpoints by their sequence; of those without a manifest, as transformers
/// writes them, by their step.
void put_newest_first(std::vector<fs::path>& paths, const std::map<fs::path, std::int64_t>& sequences) {
  std::ranges::stable_sort(paths, std::ranges::greater(), [&](const fs::path& path) {
    const fs::path folder = path.parent_path();
    const auto step = step_in_name(folder.filename());
    const auto sequence = sequences.find(folder);
    return std::tuple(!step.has_value(), sequence == sequences.end() ? std::int64_t{0} : sequence->second,
                      step.value_or(0));
  });
}

/// A Trainer's ranks write into its output folder.
fs::path output_folder_of_rank(const fs::path& rank) { return rank.parent_path().parent_path(); }

/// Keeps one training where several have their output folders in this one, or one in that of another: this
/// folder's own, otherwise the one whose ranks wrote last. What lies in none of them stays.
class TrainingChoice {
 public:
  explicit TrainingChoice(const std::vector<fs::path>& ranks) {
    for (const auto& rank : ranks) {
      std::error_code unknown;
      auto& written =
          folders_.try_emplace(output_folder_of_rank(rank), fs::file_time_type::min()).first->second;
      written = std::max(written, fs::last_write_time(rank, unknown));
    }
  }

  void leave_one(RunFiles& files, const fs::path& folder) {
    if (folders_.size() < 2) return;
    const auto own = folders_.find((folder / "ranks").parent_path());
    chosen_ = own != folders_.end()
                  ? own->first
                  : std::ranges::max_element(folders_, {}, &Folders::value_type::second)->first;
    for (auto* list :
         {&files.states, &files.arguments, &files.results, &files.ranks, &files.checkpoint_folders,
          &files.trace_folders, &files.profiles, &files.errors, &files.attempts})
      std::erase_if(*list, [&](const fs::path& path) { return is_of_another(path); });
    std::erase_if(files.trackers, [&](const auto& entry) { return is_of_another(entry.first); });
    for (const auto& [other, ignored] : folders_) {
      if (other != chosen_) files.problems.push_back(not_shown("The files", other.string()));
    }
  }

 private:
  using Folders = std::map<fs::path, fs::file_time_type>;

  /// By the innermost output folder around it.
  bool is_of_another(const fs::path& path) const {
    for (fs::path around = path; around != around.parent_path(); around = around.parent_path()) {
      if (folders_.contains(around)) return around != chosen_;
    }
    return false;
  }

  /// When a rank wrote last.
  Folders folders_;
  fs::path chosen_;
};

}  // namespace

RunFiles find_run_files(const fs::path& folder) {
  RunFiles files;
  FileSearch search(files);
  search.search(folder, 0);
  if (search.saw_too_many()) {
    files.problems.push_back(fmt::format("'{}' has more than {} files: the rest was not looked at.",
                                         folder.string(), count_words(static_cast<double>(kMostEntries))));
  }
  TrainingChoice(files.ranks).leave_one(files, folder);
  const auto sequences = sequences_in(files.checkpoint_folders);
  put_newest_first(files.states, sequences);
  put_newest_first(files.arguments, sequences);
  return files;
}

std::string known_run_files() {
  return "trainer_state.json (also in checkpoint-<step>), metrics.jsonl, metrics.csv, events.out.tfevents.*, "
         "*_results.json, trace-rank-<rank>.json, rank_<rank>.<step>.pt.trace.json and "
         "attempt_<n>/<rank>/error.json; ranks/rank-<rank>.json adds to them";
}

std::string not_shown(const char* what, const std::string& folder) {
  return fmt::format("{} in '{}' are of another training, and are not shown: name that folder to compare it.",
                     what, folder);
}

std::string path_within(const fs::path& folder, const fs::path& path) {
  const fs::path relative = path.lexically_relative(folder);
  return relative.empty() ? path.string() : relative.string();
}

}  // namespace lockstep::launch
