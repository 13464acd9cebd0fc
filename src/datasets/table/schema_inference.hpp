#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"
#include "lockstep/datasets/value.hpp"

namespace lockstep::table {

/// Infers the common type of values. Nulls fit every type; integers widen to doubles (and, above 2^63, to
/// uint64, unless there are negative ones too); structs have the union of all fields, in order of appearance.
class SchemaInference {
 public:
  /// Throws UsageError, with the field and both types, if the value does not fit earlier ones; this object
  /// is then of no more use.
  void add(const Value& value);
  /// Same, for all values of a type that type() has returned.
  void add(const DataType& type);
  /// Counts the elements of lists in the array, whose type has been added; for cells().
  void count(const arrow::ArrayData& array);
  /// The type so far; null if there were only nulls.
  DataType type() const;

  /// How many values the columns of `rows` such rows have, with those that are null.
  std::int64_t cells(std::int64_t rows) const;
  /// The path of the object with the most different names ("votes.by_user"; empty for the rows themselves),
  /// and how many these are.
  std::pair<std::string, std::size_t> widest() const;

 private:
  void widen(TypeKind found);
  /// The place of the field in children_, or their number.
  std::size_t index_of(const std::string& name);
  SchemaInference& child(const std::string& name);
  template <typename Inner>
  void add_field(const std::string& name, const Inner& inner);

  TypeKind kind_ = TypeKind::null;
  bool negative_ = false;
  /// Of all lists together.
  std::int64_t elements_ = 0;
  /// A list's element (one), or a struct's fields.
  std::vector<std::pair<std::string, SchemaInference>> children_;
  /// The fields' indices by name, if there are many.
  std::unordered_map<std::string, std::size_t> indices_;
  /// The field that comes next if they come in order.
  std::size_t next_ = 0;
};

}  // namespace lockstep::table
