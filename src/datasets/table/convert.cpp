#include "datasets/table/convert.hpp"

#include <fmt/core.h>
#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "core/text.hpp"
#include "core/utf8_check.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/table/name_finder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep::table {
namespace {

std::string refusal(const Value& value, const DataType& type) {
  auto text = value.to_json();
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return "the value " + text + " cannot become " + type.text();
}

[[noreturn]] void refuse(const Value& value, const DataType& type) { throw UsageError(refusal(value, type)); }

/// Removes a plus sign, which from_chars does not accept.
std::string_view unsigned_text(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

std::string as_text(const Value& value, const DataType& type) {
  if (const auto* text = std::get_if<std::string>(&value.variant())) return *text;
  if (const auto* bytes = std::get_if<Bytes>(&value.variant())) {
    if (first_not_utf8(bytes->data) != std::string_view::npos) refuse(value, type);
    return bytes->data;
  }
  // As Arrow writes it: 3.0 is "3".
  if (const auto* real = std::get_if<double>(&value.variant()))
    return Column(arrow_file::cast(make_column<double>({*real}).flatten(), type)).value(0).text();
  if (value.is_number() || std::get_if<bool>(&value.variant()) != nullptr) return value.to_json();
  refuse(value, type);
}

Value as_bytes(const Value& value, const DataType& type) {
  if (std::get_if<Bytes>(&value.variant()) != nullptr) return value;
  if (const auto* text = std::get_if<std::string>(&value.variant())) return Value(Bytes{*text});
  refuse(value, type);
}

Value as_boolean(const Value& value, const DataType& type) {
  if (std::get_if<bool>(&value.variant()) != nullptr) return value;
  if (value.is_number()) return Value(value.number() != 0);
  const auto* text = std::get_if<std::string>(&value.variant());
  if (text == nullptr) refuse(value, type);
  if (*text == "0" || *text == "1") return Value(*text == "1");
  const auto parsed = parse_boolean(*text);
  if (!parsed) refuse(value, type);
  return Value(*parsed);
}

Value as_time(const std::string& text, const DataType& type) try {
  return Column(arrow_file::cast(make_column<std::string>({text}).flatten(), type)).value(0);
} catch (const UsageError&) {
  // Text of a number, as numbers are: in the type's unit.
  const auto number = parse_integer(text);
  if (!number) refuse(Value(text), type);
  return Value(*number);
}

Value as_number(const Value& value, const DataType& type) {
  if (value.is_number()) return value;
  if (const auto* truth = std::get_if<bool>(&value.variant())) return Value(*truth ? 1 : 0);
  const auto* text = std::get_if<std::string>(&value.variant());
  if (text == nullptr) refuse(value, type);
  if (type.is_temporal()) return as_time(*text, type);
  // As a floating number "-0" keeps its sign, and more digits than the type has are rounded.
  if (!type.is_floating()) {
    if (const auto whole = parse_integer(*text)) return Value(*whole);
    if (const auto whole = parse_unsigned(*text)) return Value(*whole);
  }
  const auto number = parse_number(*text);
  if (!number) refuse(value, type);
  return Value(*number);
}

std::optional<std::int64_t> class_of(std::string_view name, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt : std::optional<std::int64_t>(found - names.begin());
}

/// A name, if need be without the blanks around it, or a number, as in `datasets`. Accepts -1, the label for
/// "none given".
Value as_class(const Value& value, const Feature& feature) {
  if (const auto* text = std::get_if<std::string>(&value.variant())) {
    auto found = class_of(*text, feature.names());
    if (!found) found = class_of(trim_blanks(*text), feature.names());
    if (found) return Value(*found);
  }
  const auto number = as_number(value, feature.type()).integer();
  if (number < -1 || number >= static_cast<std::int64_t>(feature.names().size())) {
    throw UsageError(
        fmt::format("the value {} is not one of the {} classes", value.to_json(), feature.names().size()));
  }
  return Value(number);
}

Value as_list(const Value& value, const Feature& feature) {
  const auto* list = std::get_if<Value::List>(&value.variant());
  if (list == nullptr) refuse(value, feature.type());
  Value::List elements;
  for (const auto& element : *list) elements.push_back(convert_value(element, feature.children().front()));
  return Value(std::move(elements));
}

/// Throws UsageError for a field that the features do not name.
void require_known(const Value::Fields& fields, const std::vector<Field>& names) {
  NameFinder known(names.size(), [&](std::size_t index) -> std::string_view { return names[index].name; });
  for (const auto& field : fields) {
    if (!known.find(field.first))
      throw UsageError("it has the field '" + field.first + "', which the features do not name");
  }
}

Value as_structure(const Value& value, const Feature& feature) {
  const auto* fields = std::get_if<Value::Fields>(&value.variant());
  if (fields == nullptr) refuse(value, feature.type());
  const auto& names = feature.type().fields();
  NameFinder given(fields->size(),
                   [&](std::size_t index) -> std::string_view { return (*fields)[index].first; });
  std::size_t used = 0;
  Value::Fields result;
  result.reserve(names.size());
  for (std::size_t index = 0; index < names.size(); ++index) {
    const auto found = given.find(names[index].name);
    used += found ? 1 : 0;
    result.emplace_back(names[index].name,
                        found ? convert_value((*fields)[*found].second, feature.children()[index]) : Value());
  }
  if (used < fields->size()) require_known(*fields, names);
  return Value(std::move(result));
}

Value as_plain(const Value& value, const DataType& type) {
  const auto kind = type.kind();
  if (kind == TypeKind::utf8 || kind == TypeKind::large_utf8) return Value(as_text(value, type));
  if (type.is_text_or_binary() || kind == TypeKind::fixed_size_binary) return as_bytes(value, type);
  if (kind == TypeKind::boolean) return as_boolean(value, type);
  if (kind == TypeKind::null || type.is_list() || kind == TypeKind::struct_) refuse(value, type);
  return as_number(value, type);
}

[[noreturn]] void fail_at(std::int64_t row, std::string_view name, std::string why) {
  if (why.ends_with('.')) why.pop_back();
  throw UsageError(fmt::format("row {} of the column '{}': {}.", row, name, why));
}

/// Converts rows one by one, beginning at `start`: for types without an Arrow cast.
ArrayPointer converted_rows(const Column& column, std::int64_t start, std::int64_t count,
                            const Feature& feature, std::string_view name) {
  ColumnBuilder builder(feature.type());
  for (std::int64_t row = start; row < start + count; ++row) {
    try {
      builder.append(convert_value(column.value(row), feature));
    } catch (const UsageError& error) {
      fail_at(row, name, error.what());
    }
  }
  return builder.finish().flatten();
}

/// Converts rows by Arrow's cast; if that fails, one by one, so that the error names the row and the value.
ArrayPointer cast_rows(const Column& column, std::int64_t start, std::int64_t count, const DataType& type,
                       std::string_view name) {
  try {
    return arrow_file::cast(arrow_file::rows_of(column, start, count), type);
  } catch (const UsageError& error) {
    if (count == 1) fail_at(start, name, refusal(column.value(start), type) + " (" + error.what() + ")");
    for (auto row = start; row < start + count; ++row) cast_rows(column, row, 1, type, name);
    throw;
  }
}

/// The type with those parts that Arrow can cast to the parts of the other type. Only it knows the unit of
/// times, which the values of single rows have not.
DataType cast_by_arrow(const DataType& from, const DataType& to) {
  if (arrow_file::has_cast(from, to)) return to;
  if (from.kind() == TypeKind::fixed_size_list && to.is_list())
    return DataType::fixed_size_list(cast_by_arrow(from.element(), to.element()), from.width());
  if (from.is_list() && to.is_list())
    return DataType::list(cast_by_arrow(from.element(), to.element()), from.kind() == TypeKind::large_list);
  if (from.kind() != TypeKind::struct_ || to.kind() != TypeKind::struct_) return from;
  auto fields = from.fields();
  for (auto& field : fields) {
    for (const auto& other : to.fields()) {
      if (other.name == field.name) field.type = cast_by_arrow(field.type, other.type);
    }
  }
  return DataType::struct_(std::move(fields));
}

bool has_classes(const Feature& feature) {
  const auto& children = feature.children();
  return feature.kind() == Feature::Kind::class_label ||
         std::any_of(children.begin(), children.end(), has_classes);
}

}  // namespace

DataType with_times_as_text(const DataType& type) {
  return arrow_file::with_parts(type, [](const DataType& part) {
    const bool is_time = part.is_temporal() && part.kind() != TypeKind::duration;
    return is_time ? DataType(TypeKind::utf8) : part;
  });
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return lockstep::parse_number<std::int64_t>(unsigned_text(text));
}
std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  return lockstep::parse_number<std::uint64_t>(unsigned_text(text));
}

std::optional<double> parse_number(std::string_view text) {
  text = unsigned_text(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    static const auto c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return ::strtod_l(std::string(text).c_str(), nullptr, c_locale);
  }
  return value;
}

std::optional<bool> parse_boolean(std::string_view text) {
  const auto is = [&](std::string_view word) {
    return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  };
  if (is("true")) return true;
  if (is("false")) return false;
  return std::nullopt;
}

Value convert_value(const Value& value, const Feature& feature) {
  if (value.is_null()) return value;
  switch (feature.kind()) {
    case Feature::Kind::class_label:
      return as_class(value, feature);
    case Feature::Kind::list:
      return as_list(value, feature);
    case Feature::Kind::struct_:
      return as_structure(value, feature);
    case Feature::Kind::other:
      return value;
    case Feature::Kind::value:
      break;
  }
  return as_plain(value, feature.type());
}

Column converted_column(const Column& column, const Feature& feature, std::string_view name) {
  const auto& type = feature.type();
  // Arrow does not know class names and their range.
  const bool classes = has_classes(feature);
  if (column.type() == type && !classes) return column;
  const bool plain = arrow_file::has_cast(column.type(), type);
  if (classes && plain && !(column.type() == type))
    return converted_column(converted_column(column, Feature(type), name), feature, name);
  if (!plain) {
    const auto partly = cast_by_arrow(column.type(), type);
    if (!(partly == column.type()))
      return converted_column(converted_column(column, Feature(partly), name), feature, name);
  }
  std::vector<Chunk> chunks;
  const auto convert = [&](std::int64_t start, std::int64_t count) {
    chunks.push_back({plain && !classes ? cast_rows(column, start, count, type, name)
                                        : converted_rows(column, start, count, feature, name)});
  };
  arrow_file::each_piece({{"", column}}, column.size(), arrow_file::kPieceRows, convert);
  return Column(std::make_shared<const ColumnData>(type, std::move(chunks)));
}

}  // namespace lockstep::table
