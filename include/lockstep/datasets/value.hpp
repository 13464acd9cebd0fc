#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// A byte string, as opposed to text.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// One value of any type: for code that does not know the columns' types in advance, such as readers and
/// writers of JSON. If the type is known, the typed accessors of Column are much faster.
///
/// Owns its contents. Integers are std::int64_t unless they need std::uint64_t; float16 and float32 become
/// double. Everything is *Local*.
class Value {
 public:
  using List = std::vector<Value>;
  /// The fields of a structure, in the type's order.
  using Fields = std::vector<std::pair<std::string, Value>>;
  using Variant = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes,
                               List, Fields>;

  /// Null.
  Value() = default;
  Value(bool value) : value_(value) {}
  Value(int value) : value_(std::int64_t{value}) {}
  Value(std::int64_t value) : value_(value) {}
  /// Stored as a signed integer if it fits.
  Value(std::uint64_t value);
  Value(double value) : value_(value) {}
  Value(std::string value) : value_(std::move(value)) {}
  Value(std::string_view value) : value_(std::string(value)) {}
  Value(const char* value) : value_(std::string(value)) {}
  Value(Bytes value) : value_(std::move(value)) {}
  Value(List value);
  Value(Fields value);

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  bool is_number() const noexcept;
  /// The contents, for std::visit and std::get_if.
  const Variant& variant() const noexcept { return value_; }

  // Each throws UsageError, naming the actual kind, for another kind. number() accepts integers; integer()
  // accepts whole numbers in range.
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  const std::string& text() const;
  const std::string& bytes() const;
  const List& list() const;
  const Fields& fields() const;
  /// The field of a structure. Throws UsageError if there is none of that name.
  const Value& operator[](std::string_view name) const;

  /// "null", "bool", "int64", "uint64", "double", "string", "bytes", "list" or "struct".
  const char* kind() const noexcept;
  /// As JSON on one line; bytes as base64 text (RFC 4648), NaN and infinities as Python's json writes them
  /// (NaN, Infinity).
  std::string to_json() const;

  /// The same kind and the same contents. NaN is not equal to itself.
  friend bool operator==(const Value& a, const Value& b);

 private:
  Variant value_;
};

}  // namespace lockstep
