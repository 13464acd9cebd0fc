#include "tokenizers/jinja/text_form.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

/// Namespaces may hold themselves.
constexpr int kDeepestForm = 250;

void add_repr(Text& text, const Value& value, int depth);

void add_items(Text& text, const Values& items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.add(", ");
    add_repr(text, items[i], depth);
  }
}

void add_dict(Text& text, const Value& value, int depth) {
  text.add("{");
  bool first = true;
  for (const auto& [key, own] : value.as<DictObject>().entries) {
    if (!first) text.add(", ");
    first = false;
    add_repr(text, key, depth);
    text.add(": ");
    add_repr(text, own, depth);
  }
  text.add("}");
}

void add_namespace(Text& text, const Value& value, int depth) {
  text.add("<TemplateNamespace {");
  bool first = true;
  for (const auto& [name, own] : value.as<NamespaceObject>().attributes) {
    if (!first) text.add(", ");
    first = false;
    add_quoted(text, name);
    text.add(": ");
    add_repr(text, own, depth);
  }
  text.add("}>");
}

void add_view(Text& text, const Value& value, int depth) {
  text.add(type_name(value));
  text.add("([");
  add_items(text, elements_of(text.budget(), value), depth);
  text.add("])");
}

void add_range(Text& text, const RangeObject& range) {
  text.add(fmt::format("range({}, {}", range.start, range.stop));
  text.add(range.step == 1 ? ")" : fmt::format(", {})", range.step));
}

void add_repr(Text& text, const Value& value, int depth) {
  text.budget().step();
  if (++depth > kDeepestForm) fail("a value to be shown is nested too deeply.");
  switch (value.kind) {
    case Kind::undefined:
      return text.add("Undefined");
    case Kind::none:
      return text.add("None");
    case Kind::boolean:
      return text.add(value.integer != 0 ? "True" : "False");
    case Kind::integer:
      return text.add(fmt::format("{}", value.integer));
    case Kind::real:
      return text.add(float_repr(value.real));
    case Kind::text:
      if (!value.markup) return add_quoted(text, text_of(value));
      text.add("Markup(");
      add_quoted(text, text_of(value));
      return text.add(")");
    case Kind::list:
      text.add("[");
      add_items(text, items_of(value), depth);
      return text.add("]");
    case Kind::tuple:
      text.add("(");
      add_items(text, items_of(value), depth);
      return text.add(items_of(value).size() == 1 ? ",)" : ")");
    case Kind::dict:
      return add_dict(text, value, depth);
    case Kind::range:
      return add_range(text, value.as<RangeObject>());
    case Kind::view:
      return add_view(text, value, depth);
    case Kind::name_space:
      return add_namespace(text, value, depth);
    default:
      fail(fmt::format(
          "a value of type '{}' has no text: call it, or make a list of it with the filter 'list'.",
          type_name(value)));
  }
}

}  // namespace

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::scientific).ptr;
  std::string_view shortest(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  std::string text;
  if (shortest.front() == '-') {
    text = "-";
    shortest.remove_prefix(1);
  }
  const auto mark = shortest.find('e');
  const int exponent = std::atoi(shortest.data() + mark + 1);
  std::string digits(1, shortest[0]);
  if (mark > 2) digits += shortest.substr(2, mark - 2);
  if (exponent >= -4 && exponent < 16) {
    if (exponent < 0) return text + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole) return text + digits + std::string(whole - digits.size(), '0') + ".0";
    return text + digits.substr(0, whole) + "." + digits.substr(whole);
  }
  text += digits.substr(0, 1);
  if (digits.size() > 1) text += "." + digits.substr(1);
  return text + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
}

void add_quoted(Text& text, const std::string& string) {
  const char quote =
      string.find('\'') != std::string::npos && string.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (std::size_t position = 0; position < string.size();) {
    const auto begin = position;
    const auto code = tokenizer::next_character(string, position);
    if (code == U'\\' || code == static_cast<char32_t>(quote)) {
      quoted += '\\';
      quoted += static_cast<char>(code);
    } else if (code == U'\n') {
      quoted += "\\n";
    } else if (code == U'\r') {
      quoted += "\\r";
    } else if (code == U'\t') {
      quoted += "\\t";
    } else if (is_printable(code)) {
      quoted += string.substr(begin, position - begin);
    } else if (code < 0x100) {
      quoted += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(code));
    } else {
      quoted += code < 0x10000 ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code))
                               : fmt::format("\\U{:08x}", static_cast<std::uint32_t>(code));
    }
  }
  text.add(quoted + quote);
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is(Kind::undefined)) return {};
  Text text(budget);
  if (value.is(Kind::text)) {
    text.add(text_of(value));
  } else {
    add_repr(text, value, 0);
  }
  return text.take();
}

std::string to_repr(Budget& budget, const Value& value) {
  Text text(budget);
  add_repr(text, value, 0);
  return text.take();
}

Value soft_text(Budget& budget, const Value& value) {
  return value.is(Kind::text) ? value : Value::text(budget, to_text(budget, value));
}

}  // namespace lockstep::jinja
