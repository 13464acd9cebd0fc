#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Data sets by split name, in order: "train", "validation", "test". A plain value; everything is *Local*.
class DatasetDict {
 public:
  DatasetDict() = default;
  /// Throws UsageError for a name that occurs twice, or one that `datasets` would reject: empty, or with
  /// characters other than letters, digits, `_`, `.` and `-`.
  explicit DatasetDict(std::vector<std::pair<std::string, ArrowDataset>> splits);

  /// Loads a folder that DatasetDict.save_to_disk wrote, here or in Python. Throws DataError, naming the
  /// folder.
  static DatasetDict load(const std::filesystem::path& folder, const LoadOptions& options = {});

  /// Writes one folder per split and dataset_dict.json, which Python's load_from_disk reads. The folder
  /// appears completely or not at all, and replaces an existing one. Throws Error.
  void save_to_disk(const std::filesystem::path& folder, const SaveOptions& options = {}) const;

  std::size_t size() const noexcept { return splits_.size(); }
  bool contains(std::string_view name) const noexcept;
  /// Throws UsageError, listing the splits, if there is none of that name.
  const ArrowDataset& operator[](std::string_view name) const;
  std::vector<std::string> names() const;
  const std::vector<std::pair<std::string, ArrowDataset>>& items() const noexcept { return splits_; }

 private:
  std::vector<std::pair<std::string, ArrowDataset>> splits_;
};

}  // namespace lockstep
