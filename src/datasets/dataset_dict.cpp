#include "lockstep/datasets/dataset_dict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/atomic_directory.hpp"
#include "core/json_text.hpp"
#include "datasets/cache/saved_folder.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

DatasetDict::DatasetDict(std::vector<std::pair<std::string, ArrowDataset>> splits)
    : splits_(std::move(splits)) {
  std::set<std::string> seen;
  for (const auto& [name, dataset] : splits_) {
    if (!is_split_name(name)) {
      throw UsageError("'" + name +
                       "' is not a name for a split: letters, digits, '_', '.' and '-' are allowed.");
    }
    if (!seen.insert(name).second) throw UsageError("the split '" + name + "' is given twice.");
  }
}

DatasetDict DatasetDict::load(const std::filesystem::path& folder, const LoadOptions& options) {
  std::vector<std::pair<std::string, ArrowDataset>> splits;
  for (const auto& name : read_saved_splits(folder)) {
    splits.emplace_back(name, ArrowDataset::load(folder / name, options).with_split(name));
  }
  try {
    return DatasetDict(std::move(splits));
  } catch (const UsageError& error) {
    throw DataError("'" + (folder / "dataset_dict.json").string() + "': " + error.what());
  }
}

void DatasetDict::save_to_disk(const std::filesystem::path& folder, const SaveOptions& options) const {
  for (const auto& [name, dataset] : splits_) require_foreign(dataset, folder);
  AtomicDirectory target(folder);
  for (const auto& [name, dataset] : splits_) {
    std::filesystem::create_directory(target.path() / name);
    write_folder(dataset.with_split(name), target.path() / name, options);
  }
  write_atomically(target.path() / "dataset_dict.json", json_text(nlohmann::json{{"splits", names()}}));
  target.commit();
}

bool DatasetDict::contains(std::string_view name) const noexcept {
  return std::any_of(splits_.begin(), splits_.end(), [&](const auto& split) { return split.first == name; });
}

const ArrowDataset& DatasetDict::operator[](std::string_view name) const {
  for (const auto& [split, dataset] : splits_) {
    if (split == name) return dataset;
  }
  throw UsageError(
      fmt::format("there is no split '{}'; the splits are '{}'.", name, fmt::join(names(), "', '")));
}

std::vector<std::string> DatasetDict::names() const {
  std::vector<std::string> names;
  for (const auto& split : splits_) names.push_back(split.first);
  return names;
}

}  // namespace lockstep
