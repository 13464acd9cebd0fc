#pragma once

#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// A batch's part of the result: the columns of the source that stay, and those of the function in their
/// place or behind. Throws UsageError, naming columns and lengths, when they do not fit together.
Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed);

/// The columns that all parts of a result have in common. Where one part has nothing but nulls (a batch
/// without a value, an empty list in each row) and another knows their type, that type is the result's, at
/// any depth: null beside float64, list<null> beside list<int64>.
class ResultColumns {
 public:
  /// What a column means: by `features` if it says so, by the source where the type is still the same, else
  /// by its type.
  ResultColumns(Features source, std::optional<Features> features);

  /// Takes a part in. True when the types that were known have changed by that. Throws UsageError, naming
  /// the column and both types, when names or types are others than those of the parts before.
  bool add(const std::vector<Field>& fields);
  bool add(const Columns& part);

  const std::vector<Field>& fields() const noexcept { return fields_; }
  /// A part as all parts are.
  Columns aligned(Columns part) const;
  /// Parts one below the other, as a table.
  ArrowDataset joined(std::vector<Columns> parts) const;

 private:
  Feature feature_of(const Field& field) const;

  Features source_;
  std::optional<Features> features_;
  bool known_ = false;
  std::vector<Field> fields_;
};

}  // namespace lockstep
