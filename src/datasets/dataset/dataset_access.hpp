#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/table/content_hash.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Content of a data set. Immutable, except for the fingerprint, which is computed at the first request.
struct ArrowDataset::State {
  std::vector<std::pair<std::string, Column>> columns;
  Features features;
  /// Number of rows of each column. Most columns share one row map; an added column has its own.
  std::int64_t rows = 0;
  std::string split;
  /// Files whose rows were read into memory.
  std::vector<std::filesystem::path> sources;

  mutable std::mutex lock;
  mutable std::string fingerprint;
};

/// Access to the private state, for the other files of this folder.
struct DatasetAccess {
  using State = ArrowDataset::State;

  static ArrowDataset make(std::shared_ptr<const State> state) { return ArrowDataset(std::move(state)); }
  static const State& state(const ArrowDataset& dataset) { return *dataset.state_; }
  /// ArrowDataset::fingerprint() with the caller's memory of file hashes.
  static std::string fingerprint(const ArrowDataset& dataset, const HashMemory& memory);
  /// A copy to modify, without the fingerprint.
  static std::shared_ptr<State> copy(const ArrowDataset& dataset);
  /// The same columns with `count` other rows. `change` computes a column's new row map from its old one, and
  /// is called once for columns that share one.
  template <typename Change>
  static ArrowDataset with_rows(const ArrowDataset& dataset, std::int64_t count, const Change& change) {
    auto fresh = copy(dataset);
    fresh->rows = count;
    RowMap last;
    RowMap changed;
    for (std::size_t position = 0; position < fresh->columns.size(); ++position) {
      auto& column = fresh->columns[position].second;
      if (position == 0 || !column.rows().is_same(last)) {
        last = column.rows();
        changed = change(last);
      }
      column = Column(column.data(), changed);
    }
    return make(std::move(fresh));
  }
  /// The index of a column. Throws UsageError, listing the existing columns.
  static std::size_t find(const ArrowDataset& dataset, std::string_view name);
};

/// The data set, with `path` recorded as the source of its rows if it has no files.
ArrowDataset with_source(const ArrowDataset& dataset, const std::filesystem::path& path);

}  // namespace lockstep
