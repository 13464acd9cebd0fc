#pragma once

#include <filesystem>
#include <string>
#include <vector>

// What save_to_disk writes, here and in Python: a folder's state.json lists its files, a DatasetDict's
// dataset_dict.json the folders of its splits. All functions throw DataError, with the file's name, if a list
// is invalid or has a path outside its folder. *Local*.
namespace lockstep {

struct SavedFolder {
  /// The names of its files: at least one.
  std::vector<std::string> files;
  /// For example "train"; empty if unknown.
  std::string split;
};

SavedFolder read_saved_folder(const std::filesystem::path& folder);

std::vector<std::string> read_saved_splits(const std::filesystem::path& folder);

/// Letters, digits, `_`, `.` and `-`, as in `datasets`.
bool is_split_name(const std::string& name);

}  // namespace lockstep
