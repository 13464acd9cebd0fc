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

/// What a data set consists of. Immutable, but for the fingerprint that is found when it is first asked for.
struct ArrowDataset::State {
  std::vector<std::pair<std::string, Column>> columns;
  Features features;
  /// Of each column. The columns mostly share one row map, but one that was added has its own.
  std::int64_t rows = 0;
  std::string split;
  /// Files whose rows were read into memory.
  std::vector<std::filesystem::path> sources;

  mutable std::mutex lock;
  mutable std::string fingerprint;
};

/// How the parts of this folder make data sets out of states.
struct DatasetAccess {
  using State = ArrowDataset::State;

  static ArrowDataset make(std::shared_ptr<const State> state) { return ArrowDataset(std::move(state)); }
  static const State& state(const ArrowDataset& dataset) { return *dataset.state_; }
  /// ArrowDataset::fingerprint() with a memory of the caller's for hashes of files.
  static std::string fingerprint(const ArrowDataset& dataset, const HashMemory& memory);
  /// A copy to change, without the fingerprint.
  static std::shared_ptr<State> copy(const ArrowDataset& dataset);
  /// The same columns with `count` other rows: `change` makes a column's new row map out of its old one, and
  /// is called once for all columns that share one.
  template <typename Change>
  static ArrowDataset with_rows(const ArrowDataset& dataset, std::int64_t count, const Change& change) {
    auto fresh = copy(dataset);
    fresh->rows = count;
    RowMap last;
    RowMap changed;
    for (std::size_t place = 0; place < fresh->columns.size(); ++place) {
      auto& column = fresh->columns[place].second;
      if (place == 0 || !column.rows().is_same(last)) {
        last = column.rows();
        changed = change(last);
      }
      column = Column(column.data(), changed);
    }
    return make(std::move(fresh));
  }
  /// The place of a column. Throws UsageError, naming the columns that there are.
  static std::size_t find(const ArrowDataset& dataset, std::string_view name);
};

/// A column "text" with the lines of a file, each with its "\n" if `keep_linebreaks`.
ArrowDataset load_text_rows(const std::filesystem::path& path, bool keep_linebreaks);

/// The data set with the file that its rows were read from, where it does not know it.
ArrowDataset with_source(const ArrowDataset& dataset, const std::filesystem::path& path);

}  // namespace lockstep
