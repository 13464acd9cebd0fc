#include "datasets/readers/json_settler.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <utility>

#include "datasets/readers/rounding.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/table/json_feature.hpp"
#include "datasets/table/name_finder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

/// Numbers that a column of floating ones rounds, and objects for a column of text.
class Settler {
 public:
  explicit Settler(const Rounded& rounded) : rounded_(rounded) {}

  Value settle(const Value& value, const Feature& feature) const {
    if (table::is_json(feature)) return value.is_null() ? value : Value(readable(value).to_json());
    const auto& type = feature.type();
    const auto& variant = value.variant();
    if (const auto* digits = std::get_if<Bytes>(&variant)) return long_integer(digits->data, type);
    const bool integer =
        std::get_if<std::int64_t>(&variant) != nullptr || std::get_if<std::uint64_t>(&variant) != nullptr;
    if (integer && type.is_floating()) return real(value.to_json(), type);
    if (const auto* list = std::get_if<Value::List>(&variant)) return settled_list(*list, feature);
    if (const auto* fields = std::get_if<Value::Fields>(&variant)) return settled_fields(*fields, feature);
    return value;
  }

 private:
  static bool is_text(const DataType& type) {
    return type.kind() == TypeKind::utf8 || type.kind() == TypeKind::large_utf8;
  }

  Value long_integer(const std::string& digits, const DataType& type) const {
    if (type.is_integer())
      throw UsageError(fmt::format("the integer {} is outside of the range of {}", digits, type.text()));
    return type.is_floating() ? real(digits, type) : Value(digits);
  }

  Value real(const std::string& integer, const DataType& type) const {
    const auto number = table::parse_number(integer).value_or(NAN);
    // Shorter types are asked for by whoever wants fewer digits.
    if (type.kind() == TypeKind::float64 && !is_exact(integer, number)) rounded_(integer, number);
    return Value(number);
  }

  Value settled_list(const Value::List& list, const Feature& feature) const {
    if (is_text(feature.type())) return Value(Value(readable(list)).to_json());
    if (feature.kind() != Feature::Kind::list) return Value(list);
    Value::List elements;
    elements.reserve(list.size());
    for (const auto& element : list) elements.push_back(settle(element, feature.children().front()));
    return Value(std::move(elements));
  }

  Value settled_fields(const Value::Fields& fields, const Feature& feature) const {
    if (is_text(feature.type())) return Value(Value(readable(fields)).to_json());
    if (feature.kind() != Feature::Kind::struct_) return Value(fields);
    const auto& names = feature.type().fields();
    table::NameFinder known(names.size(),
                            [&](std::size_t index) -> std::string_view { return names[index].name; });
    Value::Fields inner;
    inner.reserve(fields.size());
    for (const auto& [name, field] : fields) {
      const auto index = known.find(name);
      inner.emplace_back(name, index ? settle(field, feature.children()[*index]) : field);
    }
    return Value(std::move(inner));
  }

  /// With long integers as texts of digits.
  static Value readable(const Value& value) {
    if (const auto* digits = std::get_if<Bytes>(&value.variant())) return Value(digits->data);
    if (const auto* list = std::get_if<Value::List>(&value.variant())) return Value(readable(*list));
    if (const auto* fields = std::get_if<Value::Fields>(&value.variant())) return Value(readable(*fields));
    return value;
  }
  static Value::List readable(const Value::List& list) {
    Value::List elements;
    for (const auto& element : list) elements.push_back(readable(element));
    return elements;
  }
  static Value::Fields readable(const Value::Fields& fields) {
    Value::Fields inner;
    for (const auto& [name, field] : fields) inner.emplace_back(name, readable(field));
    return inner;
  }

  const Rounded& rounded_;
};

}  // namespace

Value settled_json(const Value& value, const Feature& feature, const Rounded& rounded) {
  return Settler(rounded).settle(value, feature);
}

}  // namespace lockstep::readers
