#include "datasets/dataset/dataset_access.hpp"

namespace lockstep {

std::shared_ptr<ArrowDataset::State> DatasetAccess::copy(const ArrowDataset& dataset) {
  const auto& from = state(dataset);
  auto fresh = std::make_shared<State>();
  fresh->columns = from.columns;
  fresh->features = from.features;
  fresh->rows = from.rows;
  fresh->split = from.split;
  fresh->sources = from.sources;
  return fresh;
}

std::size_t DatasetAccess::find(const ArrowDataset& dataset, std::string_view name) {
  const auto& columns = state(dataset).columns;
  for (std::size_t index = 0; index < columns.size(); ++index) {
    if (columns[index].first == name) return index;
  }
  // Throws, listing the existing columns.
  static_cast<void>(state(dataset).features[name]);
  return columns.size();
}

ArrowDataset with_source(const ArrowDataset& dataset, const std::filesystem::path& path) {
  if (!dataset.files().empty()) return dataset;
  auto fresh = DatasetAccess::copy(dataset);
  fresh->sources.push_back(path);
  return DatasetAccess::make(std::move(fresh));
}

}  // namespace lockstep
