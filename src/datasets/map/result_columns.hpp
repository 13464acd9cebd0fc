#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// A batch's part of the result: the source's kept columns, with the function's columns replacing them or
/// after them. Throws UsageError, with columns and lengths, if they do not match.
Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed);

/// The columns that all parts of a result have. If a column has only nulls in one part (a batch without
/// values, an empty list in each row) and a type in another, that type is the result's, at any depth: null
/// beside float64, list<null> beside list<int64>.
class ResultColumns {
 public:
  /// The feature of a column is that of `features` if it has one, that of the source if the type is
  /// unchanged, and otherwise that of its type.
  ResultColumns(Features source, std::optional<Features> features);

  /// Adds a part. Returns true if this changed the known types. Throws UsageError, with the column and both
  /// types, if names or types differ from earlier parts.
  bool add(const std::vector<Field>& fields);
  bool add(const Columns& part);
  /// After all parts: a column with only nulls in all of them keeps the type that it has in the source.
  void take_types_for_nulls();

  const std::vector<Field>& fields() const noexcept { return fields_; }
  /// A part, converted to the types of the result.
  Columns aligned(Columns part) const;
  /// Parts concatenated into a data set.
  ArrowDataset join_parts(std::vector<Columns> parts) const;

 private:
  Feature feature_of(const Field& field) const;

  Features source_;
  std::optional<Features> features_;
  bool known_ = false;
  std::vector<Field> fields_;
};

}  // namespace lockstep
