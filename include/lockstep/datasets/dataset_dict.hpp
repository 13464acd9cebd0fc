#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Data sets by the names of their splits, in order: "train", "validation", "test". A plain value; everything
/// is *Local*.
class DatasetDict {
 public:
  DatasetDict() = default;
  /// Throws UsageError for a name given twice, or one that `datasets` would refuse: empty, or with other
  /// characters than letters, digits, `_`, `.` and `-`.
  explicit DatasetDict(std::vector<std::pair<std::string, ArrowDataset>> splits);

  /// A folder that DatasetDict.save_to_disk wrote, here or in Python. Throws DataError, naming the folder.
  static DatasetDict load(const std::filesystem::path& folder, const LoadOptions& options = {});

  /// Writes a folder for each split and dataset_dict.json, which Python's load_from_disk reads. The whole
  /// folder appears or nothing does; one that is there is replaced. Throws Error.
  void save_to_disk(const std::filesystem::path& folder, const SaveOptions& options = {}) const;

  std::size_t size() const noexcept { return splits_.size(); }
  bool contains(std::string_view name) const noexcept;
  /// Throws UsageError, naming the splits that there are, when there is none of that name.
  const ArrowDataset& operator[](std::string_view name) const;
  std::vector<std::string> names() const;
  const std::vector<std::pair<std::string, ArrowDataset>>& items() const noexcept { return splits_; }

 private:
  std::vector<std::pair<std::string, ArrowDataset>> splits_;
};

}  // namespace lockstep
