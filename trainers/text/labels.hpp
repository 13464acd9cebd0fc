#pragma once

#include <string>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace texts {

/// The classes of a data set.
struct Classes {
  /// By number; empty if only numbers are known.
  std::vector<std::string> names;
  std::int64_t count = 0;
};

/// The classes in a column: the names of a ClassLabel, the distinct texts in byte order, or numbers from 0 to
/// the largest (false and true are 0 and 1). `what` names the file in errors. Throws DataError, with the row,
/// for a null and for any other label, or for fewer than two classes.
Classes classes_of(const lockstep::ArrowDataset& table, const std::string& column, const std::string& what);

/// The same for lists of labels, one for each word.
Classes tag_classes_of(const lockstep::ArrowDataset& table, const std::string& column,
                       const std::string& what);

/// The classes to train for. `model` has those of config.json: its num_labels and, if it has one, its
/// id2label. They are used if they include all names of the data, or if the data have only numbers, so that a
/// classifier keeps what it has learned. For a model with placeholder names (LABEL_0, ...), the data's
/// classes are used. Throws DataError, listing both, if the data have classes that the model does not name.
/// `data_file` and `model_folder` name the two in errors.
Classes agreed_classes(const Classes& data, const Classes& model, const std::string& data_file,
                       const std::string& model_folder);

/// The table with a column "labels" of class numbers (int64) instead of `column` (and of its own "labels", if
/// it has some): a text or a ClassLabel's name gets its number in `classes`, a plain number stays. Throws
/// DataError, with the row, if a label is not one of the classes.
lockstep::ArrowDataset with_labels(const lockstep::ArrowDataset& table, const std::string& column,
                                   const Classes& classes, const std::string& what);
/// The same for lists of labels.
lockstep::ArrowDataset with_tags(const lockstep::ArrowDataset& table, const std::string& column,
                                 const Classes& classes, const std::string& what);

}  // namespace texts
