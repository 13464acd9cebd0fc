#pragma once

#include "lockstep/data/map.hpp"

namespace lockstep {

/// A batch's part of the result: the columns of the source that stay, and those of the function in their
/// place or behind. Throws UsageError, naming columns and lengths, when they do not fit together.
Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed);

/// Puts parts of the result one below the other.
class ColumnsCollector {
 public:
  /// Throws UsageError when names or types are others than those of the parts before.
  void add(Columns part);
  /// All parts as a table. What a column means: by `options` if it says so, by the source where the type is
  /// still the same, else by its type.
  ArrowDataset finish(const Features& source, const std::optional<Features>& features) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<Column>> columns_;
};

}  // namespace lockstep
