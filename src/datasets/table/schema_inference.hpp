#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"
#include "lockstep/datasets/value.hpp"

namespace lockstep::table {

/// Infers the common type of values. Nulls fit every type; integers widen to doubles (and, above 2^63, to
/// uint64); structs have the union of all fields, in order of appearance.
class SchemaInference {
 public:
  /// Throws UsageError, with the field and both types, if the value does not fit earlier ones.
  void add(const Value& value);
  /// Same, for all values of a type that type() has returned.
  void add(const DataType& type);
  /// The type so far; null if there were only nulls.
  DataType type() const;

 private:
  void widen(TypeKind found);
  SchemaInference& child(const std::string& name);
  template <typename Inner>
  void add_field(const std::string& name, const Inner& inner);

  TypeKind kind_ = TypeKind::null;
  /// A list's element (one), or a struct's fields.
  std::vector<std::pair<std::string, SchemaInference>> children_;
};

}  // namespace lockstep::table
