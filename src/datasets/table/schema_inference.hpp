#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"
#include "lockstep/datasets/value.hpp"

namespace lockstep::table {

/// Finds the type that all of some values have. Nulls fit everything; integers widen to doubles (and, above
/// 2^63, to uint64); structures have all the fields that any of them has, in the order of their appearance.
class SchemaInference {
 public:
  /// Throws UsageError, naming the field and both types, for a value that does not go with those before.
  void add(const Value& value);
  /// The same for values of a type: one of those that type() gives.
  void add(const DataType& type);
  /// The type so far: null when there was nothing but nulls.
  DataType type() const;

 private:
  enum class Kind { null, boolean, int64, uint64, float64, text, bytes, list, struct_ };
  static Kind kind_of(const Value& value);
  static Kind kind_of(const DataType& type);
  void widen(Kind found);
  SchemaInference& child(const std::string& name);
  template <typename Inner>
  void add_field(const std::string& name, const Inner& inner);

  Kind kind_ = Kind::null;
  /// A list's element (one), or a structure's fields.
  std::vector<std::pair<std::string, SchemaInference>> children_;
};

}  // namespace lockstep::table
