#include "convert.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "core/utf8_check.hpp"
#include "datasets/arrow/bridge.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep::table {
namespace {

[[noreturn]] void refuse(const Value& value, const DataType& type) {
  auto text = value.to_json();
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  throw UsageError("the value " + text + " cannot become " + type.text());
}

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
  const auto parsed = text != nullptr ? parse_boolean(*text) : std::nullopt;
  if (!parsed) refuse(value, type);
  return Value(*parsed);
}

Value as_number(const Value& value, const DataType& type) {
  if (value.is_number()) return value;
  if (const auto* truth = std::get_if<bool>(&value.variant())) return Value(*truth ? 1 : 0);
  const auto* text = std::get_if<std::string>(&value.variant());
  if (text == nullptr) refuse(value, type);
  if (const auto whole = parse_integer(*text)) return Value(*whole);
  const auto number = parse_number(*text);
  if (!number) refuse(value, type);
  return Value(*number);
}

/// Accepts -1, the label for "none given" in `datasets`.
Value as_class(const Value& value, const Feature& feature) {
  const auto* text = std::get_if<std::string>(&value.variant());
  if (text != nullptr) {
    const auto& names = feature.names();
    const auto found = std::find(names.begin(), names.end(), *text);
    if (found != names.end()) return Value(static_cast<std::int64_t>(found - names.begin()));
  }
  const auto number = as_number(value, feature.type()).integer();
  if (number < -1 || number >= static_cast<std::int64_t>(feature.names().size())) {
    throw UsageError("the value " + value.to_json() + " is not one of the " +
                     std::to_string(feature.names().size()) + " classes");
  }
  return Value(number);
}

Value as_list(const Value& value, const Feature& feature) {
  const auto* list = std::get_if<Value::List>(&value.variant());
  if (list == nullptr) refuse(value, feature.type());
  Value::List elements;
  for (const auto& element : *list) elements.push_back(converted(element, feature.children().front()));
  return Value(std::move(elements));
}

Value as_structure(const Value& value, const Feature& feature) {
  const auto* fields = std::get_if<Value::Fields>(&value.variant());
  if (fields == nullptr) refuse(value, feature.type());
  Value::Fields result;
  for (std::size_t place = 0; place < feature.children().size(); ++place) {
    const auto& name = feature.type().fields()[place].name;
    const auto found =
        std::find_if(fields->begin(), fields->end(), [&](const auto& field) { return field.first == name; });
    result.emplace_back(
        name, found == fields->end() ? Value() : converted(found->second, feature.children()[place]));
  }
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

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = unsigned_text(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  text = unsigned_text(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
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

Value converted(const Value& value, const Feature& feature) {
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

namespace {

/// Converts rows one by one, beginning at `start`: for types without an Arrow cast, and to report the value
/// that does not fit.
ArrayPointer converted_rows(const Column& column, std::int64_t start, std::int64_t count,
                            const Feature& feature, std::string_view name) {
  ColumnBuilder builder(feature.type());
  for (std::int64_t row = start; row < start + count; ++row) {
    try {
      builder.append(converted(column.value(row), feature));
    } catch (const UsageError& error) {
      std::string why = error.what();
      if (why.ends_with('.')) why.pop_back();
      throw UsageError("row " + std::to_string(row) + " of the column '" + std::string(name) + "': " + why +
                       ".");
    }
  }
  return builder.finish().flatten();
}

}  // namespace

Column converted_column(const Column& column, const Feature& feature, std::string_view name) {
  // Pieces are small enough that no text column reaches the limit of 2 GiB.
  constexpr std::int64_t kRows = 65536;
  // Arrow does not know class names and their range.
  const bool plain = feature == Feature(feature.type());
  if (column.type() == feature.type() && feature.kind() != Feature::Kind::class_label) return column;
  std::vector<Chunk> chunks;
  for (std::int64_t start = 0; start < column.size(); start += kRows) {
    const auto count = std::min(kRows, column.size() - start);
    ArrayPointer made;
    if (plain)
      made = arrow_file::cast(arrow_file::rows_of(column, start, count), column.type(), feature.type());
    chunks.push_back({made ? std::move(made) : converted_rows(column, start, count, feature, name)});
  }
  auto data = std::make_shared<const ColumnData>(feature.type(), std::move(chunks));
  const auto rows = data->size();
  return {std::move(data), RowMap(0, rows)};
}

}  // namespace lockstep::table
