#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace arrow {
class ArrayBuilder;
}

namespace lockstep {

/// Builds a column value by value. *Local*; one thread at a time; can be moved, not copied.
///
///     ColumnBuilder tokens(DataType::list(DataType(TypeKind::int64)));
///     tokens.append_list(std::span<const std::int64_t>(ids));
///     Column column = tokens.finish();
///
/// Throws UsageError, naming value and type, if a value does not fit: text for a number, 300 for an int8, 0.5
/// for an integer, 2^53 + 1 for a double. Integers accept whole doubles, and floats accept integers up to
/// 2^53 (float32: 2^24, float16: 2^11). After an error the builder is unchanged, except for lists and
/// structures, whose builder can no longer be used.
class ColumnBuilder {
 public:
  explicit ColumnBuilder(DataType type);
  ~ColumnBuilder();
  ColumnBuilder(ColumnBuilder&&) noexcept;
  ColumnBuilder& operator=(ColumnBuilder&&) noexcept;

  const DataType& type() const noexcept;
  /// Rows so far.
  std::int64_t size() const noexcept;
  /// Memory used by the values so far, in bytes.
  std::size_t bytes() const noexcept;

  void append_null();
  void append(const Value& value);
  void append(bool value);
  void append(double value);
  void append(std::string_view value);
  void append(const char* value) { append(std::string_view(value)); }
  void append(const std::string& value) { append(std::string_view(value)); }
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) void append(T value) {
    if constexpr (std::is_signed_v<T>) {
      append_signed(value);
    } else {
      append_unsigned(value);
    }
  }
  void append(float value) { append(static_cast<double>(value)); }
  /// Appends null if empty.
  template <typename T>
  void append(const std::optional<T>& value) {
    if (value) {
      append(*value);
    } else {
      append_null();
    }
  }

  /// Appends a row of a list type. Numbers of the elements' own type are copied at once.
  template <typename T>
  void append_list(std::span<const T> values) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (table::Reader<T>::reads(element_type())) {
        append_elements(values.data(), values.size());
        return;
      }
    }
    begin_list(values.size());
    for (const auto& value : values) elements().append(value);
  }
  template <typename T>
  void append(const std::vector<T>& values) {
    if constexpr (std::is_same_v<T, bool>) {
      begin_list(values.size());
      for (const bool value : values) elements().append(value);
    } else {
      append_list(std::span<const T>(values));
    }
  }

  /// Returns the column; the builder is empty afterwards.
  Column finish();

 private:
  struct Node;
  ColumnBuilder(DataType type, arrow::ArrayBuilder& builder);
  void begin(DataType type, arrow::ArrayBuilder& builder);
  template <typename Number>
  void append_integer(Number value);
  void append_signed(std::int64_t value);
  void append_unsigned(std::uint64_t value);
  const DataType& element_type() const;
  void append_elements(const void* values, std::size_t count);
  void append_fields(const Value::Fields& fields);
  void begin_list(std::size_t count);
  ColumnBuilder& elements();

  std::unique_ptr<Node> node_;
};

namespace table {

/// The column type of a C++ type.
template <typename T>
struct TypeOf;
#define LOCKSTEP_TYPE_OF(type, kind_name)                           \
  template <>                                                       \
  struct TypeOf<type> {                                             \
    static DataType get() { return DataType(TypeKind::kind_name); } \
  }
LOCKSTEP_TYPE_OF(bool, boolean);
LOCKSTEP_TYPE_OF(std::int8_t, int8);
LOCKSTEP_TYPE_OF(std::int16_t, int16);
LOCKSTEP_TYPE_OF(std::int32_t, int32);
LOCKSTEP_TYPE_OF(std::int64_t, int64);
LOCKSTEP_TYPE_OF(std::uint8_t, uint8);
LOCKSTEP_TYPE_OF(std::uint16_t, uint16);
LOCKSTEP_TYPE_OF(std::uint32_t, uint32);
LOCKSTEP_TYPE_OF(std::uint64_t, uint64);
LOCKSTEP_TYPE_OF(float, float32);
LOCKSTEP_TYPE_OF(double, float64);
LOCKSTEP_TYPE_OF(std::string, utf8);
LOCKSTEP_TYPE_OF(std::string_view, utf8);
LOCKSTEP_TYPE_OF(const char*, utf8);
#undef LOCKSTEP_TYPE_OF
template <typename T>
struct TypeOf<std::optional<T>> : TypeOf<T> {};
template <typename T>
struct TypeOf<std::vector<T>> {
  static DataType get() { return DataType::list(TypeOf<T>::get()); }
};

}  // namespace table

/// A column of a vector's elements: numbers, booleans, text, std::optional of these (empty is null), and
/// nested vectors of all of them, at any depth. `make_column<std::int64_t>({1, 2, 3})`.
template <typename T>
Column make_column(const std::vector<T>& values) {
  ColumnBuilder builder(table::TypeOf<T>::get());
  for (std::size_t row = 0; row < values.size(); ++row) {
    if constexpr (std::is_same_v<T, bool>) {
      builder.append(static_cast<bool>(values[row]));
    } else {
      builder.append(values[row]);
    }
  }
  return builder.finish();
}

}  // namespace lockstep
