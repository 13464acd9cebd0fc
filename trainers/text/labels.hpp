#pragma once

#include <string>
#include <vector>

#include "lockstep/data/arrow_dataset.hpp"

namespace texts {

/// The classes of a data set.
struct Classes {
  /// By number; empty where the data know numbers only.
  std::vector<std::string> names;
  std::int64_t count = 0;
};

/// The classes in a column: those that a ClassLabel names, the different texts in the order of their bytes,
/// or numbers from 0 to the largest. `what` names the file in errors. Throws UsageError for a column of
/// another type, DataError for a null, a number below 0, or fewer than two classes.
Classes classes_of(const lockstep::ArrowDataset& table, const std::string& column, const std::string& what);

/// The table with a column "labels" of class numbers (int64) in place of `column`. Throws DataError, naming
/// the row, for a label that is none of the classes.
lockstep::ArrowDataset with_labels(const lockstep::ArrowDataset& table, const std::string& column,
                                   const Classes& classes, const std::string& what);

}  // namespace texts
