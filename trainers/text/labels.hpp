#pragma once

#include <string>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace texts {

/// The classes of a data set.
struct Classes {
  /// By number; empty where only numbers are known.
  std::vector<std::string> names;
  std::int64_t count = 0;
};

/// The classes in a column: those that a ClassLabel names, the different texts in the order of their bytes,
/// or numbers from 0 to the largest. `what` names the file in errors. Throws UsageError for a column of
/// another type, DataError for a null, a number below 0, or fewer than two classes.
Classes classes_of(const lockstep::ArrowDataset& table, const std::string& column, const std::string& what);

/// The classes to train for. `model` are those of config.json: its num_labels and its id2label, if it has
/// one. They rule where they name all that the data name, or where the data know numbers only, so that a
/// classifier goes on with what it knows. A model with placeholders for names (LABEL_0, ...) takes the data's
/// classes. Throws DataError, listing both, for data with classes that the model does not name. `data_file`
/// and `model_folder` name the two in errors.
Classes agreed_classes(const Classes& data, const Classes& model, const std::string& data_file,
                       const std::string& model_folder);

/// The table with a column "labels" of class numbers (int64) in place of `column`: a text or a ClassLabel's
/// name gets the number that it has in `classes`, a plain number stays. Throws DataError, naming the row, for
/// a label that is not one of the classes.
lockstep::ArrowDataset with_labels(const lockstep::ArrowDataset& table, const std::string& column,
                                   const Classes& classes, const std::string& what);

}  // namespace texts
