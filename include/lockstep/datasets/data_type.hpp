#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace arrow {
class DataType;
}

namespace lockstep {

/// The physical types of a column, named as in Apache Arrow ("Arrow Columnar Format", version 1.5). Dates,
/// times, timestamps and durations are stored as integers with their unit and time zone.
enum class TypeKind : std::uint8_t {
  null,
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64,
  utf8,
  large_utf8,
  binary,
  large_binary,
  fixed_size_binary,
  list,
  large_list,
  fixed_size_list,
  struct_,
  date32,
  date64,
  time32,
  time64,
  timestamp,
  duration,
  decimal128,
  decimal256,
};

struct Field;

/// The type of a column's values: Apache Arrow's type, normalized so that equal types have equal Arrow types.
/// A small value: copies share their children. Types are equal if kind, widths, units, zones and all
/// children, including field names of structures, are equal. Everything is *Local*; several threads may read
/// one object.
class DataType {
 public:
  /// The null type: every value is null.
  DataType();
  /// A type without parameters: `DataType(TypeKind::int64)`. Throws UsageError for a kind that needs
  /// parameters.
  explicit DataType(TypeKind kind);

  /// Lists of any length; `large` uses 64-bit offsets instead of 32-bit ones.
  static DataType list(DataType element, bool large = false);
  /// Lists of exactly `length` elements.
  static DataType fixed_size_list(DataType element, std::int32_t length);
  /// Byte strings of exactly `bytes` bytes.
  static DataType fixed_size_binary(std::int32_t bytes);
  /// A structure: named fields in each row.
  static DataType struct_(std::vector<Field> fields);
  /// time32, time64, timestamp or duration with the unit "s", "ms", "us" or "ns"; a zone only for timestamps.
  static DataType temporal(TypeKind kind, std::string unit, std::string zone = {});
  /// Exact numbers of `precision` digits, `scale` of them after the decimal point, in 16 or 32 bytes.
  static DataType decimal(int bytes, std::int32_t precision, std::int32_t scale);
  /// By Hugging Face's name: "int64", "string", "timestamp[us, tz=UTC]", "decimal128(10, 2)" and so on.
  /// Throws UsageError for unknown names and unsupported types (such as unions).
  static DataType named(std::string_view name);

  TypeKind kind() const noexcept { return kind_; }
  /// Bytes of a fixed_size_binary, elements of a fixed_size_list; otherwise 0.
  std::int32_t width() const noexcept { return width_; }
  /// "s", "ms", "us", "ns"; empty for types without a unit.
  std::string unit() const;
  /// The time zone of a timestamp; often empty.
  std::string zone() const;
  /// For a decimal: the number of digits, and of digits after the decimal point; otherwise 0.
  std::int32_t precision() const;
  std::int32_t scale() const;
  /// The element of a list, the fields of a structure; otherwise empty.
  const std::vector<Field>& fields() const noexcept;
  /// The element type of a list. Throws UsageError if this is not a list.
  const DataType& element() const;

  /// list, large_list or fixed_size_list.
  bool is_list() const noexcept;
  /// utf8, large_utf8, binary or large_binary.
  bool is_text_or_binary() const noexcept;
  /// Integers of all widths: not booleans, dates or times.
  bool is_integer() const noexcept;
  /// float16, float32 or float64.
  bool is_floating() const noexcept;
  /// Dates, times, timestamps and durations.
  bool is_temporal() const noexcept;
  /// decimal128 or decimal256.
  bool is_decimal() const noexcept;

  /// Bytes per value if all values have the same size; 0 for booleans (one bit each), text, lists and
  /// structures.
  std::size_t value_bytes() const noexcept;

  /// Hugging Face's name for a type without children ("string" for utf8, "bool", "int64"); otherwise a
  /// readable one: "list<int64>", "struct<a: int64>".
  std::string text() const;

  friend bool operator==(const DataType& a, const DataType& b);

  /// For users of Arrow: a list's element is called "item", and every field is nullable.
  const std::shared_ptr<arrow::DataType>& arrow() const noexcept { return arrow_; }

 private:
  friend struct ArrowTypes;
  DataType(TypeKind kind, std::shared_ptr<arrow::DataType> arrow,
           std::shared_ptr<const std::vector<Field>> fields = nullptr);

  TypeKind kind_ = TypeKind::null;
  std::int32_t width_ = 0;
  std::shared_ptr<arrow::DataType> arrow_;
  std::shared_ptr<const std::vector<Field>> fields_;
};

/// A named type: a column of a table, a field of a structure.
struct Field {
  std::string name;
  DataType type;
  /// Whether nulls are allowed according to the file. Not enforced.
  bool nullable = true;

  friend bool operator==(const Field&, const Field&) = default;
};

}  // namespace lockstep
