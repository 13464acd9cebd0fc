#pragma once

#include <filesystem>
#include <string>
#include <vector>

// What save_to_disk leaves, here and in Python: a folder's state.json names its files, a DatasetDict's
// dataset_dict.json the folders of its splits. Everything throws DataError, naming the file, for a list that
// is none, or that leads out of its folder. *Local*.
namespace lockstep {

struct SavedFolder {
  /// The names of its files: at least one.
  std::vector<std::string> files;
  /// "train"; empty where none is known.
  std::string split;
};

SavedFolder read_saved_folder(const std::filesystem::path& folder);

std::vector<std::string> read_saved_splits(const std::filesystem::path& folder);

/// Letters, digits, `_`, `.` and `-`, as `datasets` has it.
bool is_split_name(const std::string& name);

}  // namespace lockstep
