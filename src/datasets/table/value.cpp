#include "lockstep/datasets/value.hpp"

#include <arrow/util/base64.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr const char* kKinds[] = {"null",   "bool",  "int64", "uint64", "double",
                                  "string", "bytes", "list",  "struct"};

/// Appends text as JSON: quoted and escaped. What is not UTF-8 becomes utf8_text().
void add_text(std::string& text, std::string_view value) {
  const auto is_plain = [](unsigned char one) {
    return one >= 0x20 && one < 0x80 && one != '"' && one != '\\';
  };
  if (std::all_of(value.begin(), value.end(), is_plain)) {
    text.append("\"").append(value).append("\"");
  } else {
    text += json_text(nlohmann::json(value));
  }
}

/// Appends the shortest digits that parse to the same double, with a point or an exponent; NaN, Infinity and
/// -Infinity like Python's json.
void add_number(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  const auto digits = fmt::format("{}", value);
  text += digits;
  if (digits.find_first_of(".e") == std::string::npos) text += ".0";
}

void write_json(std::string& text, const Value& value);

void write_list(std::string& text, const Value::List& list) {
  text += '[';
  for (std::size_t position = 0; position < list.size(); ++position) {
    if (position > 0) text += ", ";
    write_json(text, list[position]);
  }
  text += ']';
}

void write_fields(std::string& text, const Value::Fields& fields) {
  text += '{';
  for (std::size_t position = 0; position < fields.size(); ++position) {
    if (position > 0) text += ", ";
    add_text(text, fields[position].first);
    text += ": ";
    write_json(text, fields[position].second);
  }
  text += '}';
}

struct Writer {
  std::string& text;
  void operator()(std::monostate) const { text += "null"; }
  void operator()(bool value) const { text += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { text += std::to_string(value); }
  void operator()(std::uint64_t value) const { text += std::to_string(value); }
  void operator()(double value) const { add_number(text, value); }
  void operator()(const std::string& value) const { add_text(text, value); }
  void operator()(const Bytes& value) const {
    text.append("\"").append(arrow::util::base64_encode(value.data)).append("\"");
  }
  void operator()(const Value::List& value) const { write_list(text, value); }
  void operator()(const Value::Fields& value) const { write_fields(text, value); }
};

void write_json(std::string& text, const Value& value) { std::visit(Writer{text}, value.variant()); }

[[noreturn]] void fail(const Value& value, const char* wanted) {
  throw UsageError(std::string("a value of the kind '") + wanted + "' was asked for, but it is '" +
                   value.kind() + "'.");
}

template <typename T>
const T& get(const Value& value, const char* wanted) {
  const auto* found = std::get_if<T>(&value.variant());
  if (found == nullptr) fail(value, wanted);
  return *found;
}

}  // namespace

Value::Value(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = value;
  }
}

Value::Value(List value) : value_(std::move(value)) {}
Value::Value(Fields value) : value_(std::move(value)) {}

bool Value::is_number() const noexcept { return value_.index() >= 2 && value_.index() <= 4; }

bool Value::boolean() const { return get<bool>(*this, "bool"); }

std::int64_t Value::integer() const {
  if (const auto* number = std::get_if<double>(&value_)) {
    constexpr double kEdge = 9223372036854775808.0;
    if (std::trunc(*number) == *number && *number >= -kEdge && *number < kEdge) {
      return static_cast<std::int64_t>(*number);
    }
  }
  return get<std::int64_t>(*this, "int64");
}

double Value::number() const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*whole);
  return get<double>(*this, "double");
}

const std::string& Value::text() const { return get<std::string>(*this, "string"); }
const std::string& Value::bytes() const { return get<Bytes>(*this, "bytes").data; }
const Value::List& Value::list() const { return get<List>(*this, "list"); }
const Value::Fields& Value::fields() const { return get<Fields>(*this, "struct"); }

const Value& Value::operator[](std::string_view name) const {
  for (const auto& [field, value] : fields()) {
    if (field == name) return value;
  }
  throw UsageError("the structure has no field '" + std::string(name) + "'.");
}

const char* Value::kind() const noexcept { return kKinds[value_.index()]; }

std::string Value::to_json() const {
  std::string text;
  write_json(text, *this);
  return text;
}

bool operator==(const Value& a, const Value& b) { return a.value_ == b.value_; }

}  // namespace lockstep
