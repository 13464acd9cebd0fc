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

/// The physical types of a column, as Apache Arrow names them ("Arrow Columnar Format", version 1.5). Days,
/// times, time stamps and durations are kept as the integers that they are; their unit and zone go along.
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

/// What the values of a column are: Apache Arrow's type, of which there is one for all that are equal here. A
/// small value: copies share their children. Types are equal when kind, widths, units, zones and all children
/// with the names of a structure's fields are. Everything is *Local*; several threads may read one object.
class DataType {
 public:
  /// The null type: every value is null.
  DataType();
  /// A type without parameters: `DataType(TypeKind::int64)`. Throws UsageError for a kind that needs
  /// parameters.
  explicit DataType(TypeKind kind);

  /// Lists of any length; `large` counts with 64 bits instead of 32.
  static DataType list(DataType element, bool large = false);
  /// Lists of exactly `length` elements.
  static DataType fixed_size_list(DataType element, std::int32_t length);
  /// Byte strings of exactly `bytes` bytes.
  static DataType fixed_size_binary(std::int32_t bytes);
  /// Named fields in each row.
  static DataType struct_(std::vector<Field> fields);
  /// time32, time64, timestamp or duration with a unit of "s", "ms", "us" or "ns"; a zone for timestamps
  /// only.
  static DataType temporal(TypeKind kind, std::string unit, std::string zone = {});
  /// Exact numbers of `precision` digits, `scale` of them behind the point, in 16 or 32 bytes.
  static DataType decimal(int bytes, std::int32_t precision, std::int32_t scale);
  /// By Hugging Face's name for it: "int64", "string", "timestamp[us, tz=UTC]", "decimal128(10, 2)" and so
  /// on. Throws UsageError for a name that there is not, and for types that are not supported (unions, for
  /// one).
  static DataType named(std::string_view name);

  TypeKind kind() const noexcept { return kind_; }
  /// Bytes of a fixed_size_binary, elements of a fixed_size_list; 0 for others.
  std::int32_t width() const noexcept { return width_; }
  /// "s", "ms", "us", "ns"; empty for types without a unit.
  std::string unit() const;
  /// The time zone of a timestamp; mostly empty.
  std::string zone() const;
  /// Of a decimal: its digits, and those of them behind the point; 0 for others.
  std::int32_t precision() const;
  std::int32_t scale() const;
  /// A list's one child, a structure's fields; none for others.
  const std::vector<Field>& fields() const noexcept;
  /// What a list consists of. Throws UsageError when this is no list.
  const DataType& element() const;

  /// list, large_list or fixed_size_list.
  bool is_list() const noexcept;
  /// utf8, large_utf8, binary or large_binary.
  bool is_text_or_binary() const noexcept;
  /// Integers of all widths: not booleans, and not days and times.
  bool is_integer() const noexcept;
  /// float16, float32 or float64.
  bool is_floating() const noexcept;
  /// decimal128 or decimal256.
  bool is_decimal() const noexcept;

  /// The bytes of one value where all have the same number; 0 for booleans (a bit each) and for text, lists
  /// and structures.
  std::size_t value_bytes() const noexcept;

  /// Hugging Face's name of a type without children ("string" for utf8, "bool", "int64"); for the others a
  /// readable one: "list<int64>", "struct<a: int64>".
  std::string text() const;

  friend bool operator==(const DataType& a, const DataType& b);

  /// For who uses Arrow: the element of a list is called "item", and every field may be null.
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
  /// Whether nulls are allowed, as the file says. Not enforced.
  bool nullable = true;

  friend bool operator==(const Field&, const Field&) = default;
};

}  // namespace lockstep
