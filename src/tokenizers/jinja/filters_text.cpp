#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/filters.hpp"
#include "tokenizers/jinja/json_form.hpp"
#include "tokenizers/jinja/operators.hpp"
#include "tokenizers/jinja/percent_format.hpp"
#include "tokenizers/jinja/text_form.hpp"
#include "tokenizers/jinja/text_methods.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

/// The value as a text, and one of its methods.
Value text_method(const FilterCall& call, const char* name, const Arguments& arguments) {
  return call_text_method(call.budget, soft_text(call.budget, call.value), name, arguments);
}

Value trim(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"chars"});
  Arguments arguments;
  if (bound.has(0)) arguments.positional.push_back(bound[0]);
  return text_method(call, "strip", arguments);
}

Value change_case_filter(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  return text_method(call,
                     call.name == "upper"   ? "upper"
                     : call.name == "lower" ? "lower"
                                            : "capitalize",
                     {});
}

bool begins_word(char32_t code) {
  return is_space(code) || code == U'-' || code == U'(' || code == U'{' || code == U'[' || code == U'<';
}

/// Each part behind white space, a dash or an opening bracket in title case.
Value title_filter(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  const auto text = to_text(call.budget, call.value);
  call.budget.make(text.size());
  std::string titled;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const auto first = tokenizer::sequence_length(word[0]);
    titled +=
        to_upper(std::string_view(word).substr(0, first)) + to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (std::size_t position = 0; position < text.size();) {
    const auto begin = position;
    if (!begins_word(tokenizer::next_character(text, position))) {
      word.append(text, begin, position - begin);
      continue;
    }
    end_word();
    titled.append(text, begin, position - begin);
  }
  end_word();
  return call.text(std::move(titled));
}

Value replace_filter(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"old", "new", "count"}, 2);
  return call.text(replace_text(call.budget, to_text(call.budget, call.value), to_text(call.budget, bound[0]),
                                to_text(call.budget, bound[1]), bound.integer(2, -1)));
}

Value string_filter(const FilterCall& call) { return soft_text(call.budget, call.value); }
Value mark_safe(const FilterCall& call) { return call.text(to_text(call.budget, call.value), true); }

Value escape(const FilterCall& call) {
  if (call.value.markup && call.name != "forceescape") return call.value;
  const auto text = to_text(call.budget, call.value);
  call.budget.make(text.size() * 6);
  return call.text(escape_html(text), true);
}

Value center(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"width"});
  return call.text(center_text(call.budget, to_text(call.budget, call.value), bound.integer(0, 80)));
}

Value format_filter(const FilterCall& call) {
  if (!call.arguments.named.empty() && !call.arguments.positional.empty()) {
    fail(call.title() + " takes either named arguments or others.");
  }
  const auto format = soft_text(call.budget, call.value);
  if (call.arguments.named.empty())
    return percent_format(call.budget, format, make_tuple(call.budget, call.arguments.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : call.arguments.named)
    entries.emplace_back(Value::text(call.budget, name), value);
  return percent_format(call.budget, format, make_dict(call.budget, std::move(entries)));
}

/// What indents: a number of blanks, or a text.
std::string indentation_of(const FilterCall& call, const Value& width) {
  if (width.is(Kind::text)) return text_of(width);
  require_defined(width);
  if (!width.is_integer()) fail(fmt::format("{} needs a number or a string as its width.", call.title()));
  Text blanks(call.budget);
  blanks.add(width.integer < 0 ? 0 : static_cast<std::size_t>(width.integer), " ");
  return blanks.take();
}

Value indent(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"width", "first", "blank"});
  require_defined(call.value);
  if (!call.value.is(Kind::text))
    fail(fmt::format("{} needs a string, not a value of type '{}'.", call.title(), type_name(call.value)));
  const auto indentation = bound.has(0) ? indentation_of(call, bound[0]) : std::string(4, ' ');
  const auto source = text_of(call.value) + "\n";
  Text text(call.budget);
  bool first = true;
  for (const auto line : split_lines(source)) {
    if (!first) text.add("\n");
    if (first ? bound.flag(1) : !line.empty() || bound.flag(2)) text.add(indentation);
    text.add(line);
    first = false;
  }
  return call.text(text.take(), call.value.markup);
}

Value count_words(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  const auto text = to_text(call.budget, call.value);
  std::int64_t words = 0;
  bool within = false;
  for (std::size_t position = 0; position < text.size();) {
    const auto code = tokenizer::next_character(text, position);
    const bool is_word = is_letter(code) || is_digit(code) || code == U'_';
    words += is_word && !within ? 1 : 0;
    within = is_word;
  }
  return Value::of(words);
}

Value to_json_filter(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  if (bound.has(1) && !bound[1].is(Kind::none)) {
    style.indent = indentation_of(call, bound[1]);
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2].is(Kind::none)) {
    const auto& separators = bound[2];
    if (!separators.is_sequence() || items_of(separators).size() != 2 ||
        !items_of(separators)[0].is(Kind::text) || !items_of(separators)[1].is(Kind::text)) {
      fail(call.title() + " needs two strings as its separators.");
    }
    style.item_separator = text_of(items_of(separators)[0]);
    style.key_separator = text_of(items_of(separators)[1]);
  }
  style.sort_keys = bound.flag(3);
  return call.text(to_json(call.budget, call.value, style));
}

/// A number as Python's int() and float() read it, without blanks and single underscores between digits; an
/// empty text if it is none.
std::string number_text(std::string_view text) {
  text = strip_space(text);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return {};
  }
  return digits;
}

std::optional<double> read_real(std::string_view text) {
  const auto digits = number_text(text);
  if (digits.empty() || digits.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size() || is_space(static_cast<unsigned char>(digits[0])))
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> read_integer(std::string_view text, int base) {
  auto digits = number_text(text);
  if (digits.starts_with('+')) digits.erase(0, 1);
  const std::size_t sign = digits.starts_with('-') ? 1 : 0;
  if (base == 16 && (digits.compare(sign, 2, "0x") == 0 || digits.compare(sign, 2, "0X") == 0))
    digits.erase(sign, 2);
  if (base == 2 && (digits.compare(sign, 2, "0b") == 0 || digits.compare(sign, 2, "0B") == 0))
    digits.erase(sign, 2);
  if (base == 8 && (digits.compare(sign, 2, "0o") == 0 || digits.compare(sign, 2, "0O") == 0))
    digits.erase(sign, 2);
  std::int64_t number = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (end.ec == std::errc::result_out_of_range) fail("an integer is beyond 64 bits.");
  if (digits.empty() || end.ec != std::errc() || end.ptr != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> truncated(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::abs(number) >= 9.2e18) fail("an integer is beyond 64 bits.");
  return static_cast<std::int64_t>(number);
}

Value to_integer(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"default", "base"});
  require_defined(call.value);
  const auto base = bound.integer(1, 10);
  if (base < 2 || base > 36) fail(call.title() + " needs a base from 2 to 36.");
  std::optional<std::int64_t> number;
  if (call.value.is_integer()) number = call.value.integer;
  if (call.value.is(Kind::real)) {
    if (std::isinf(call.value.real)) fail("an integer is beyond 64 bits.");
    number = truncated(call.value.real);
  }
  if (call.value.is(Kind::text)) {
    number = read_integer(text_of(call.value), static_cast<int>(base));
    if (!number) {
      const auto real = read_real(text_of(call.value));
      if (real) number = truncated(*real);
    }
  }
  if (number) return Value::of(*number);
  return bound.has(0) ? bound[0] : Value::of(std::int64_t{0});
}

Value to_real(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"default"});
  require_defined(call.value);
  if (call.value.is_number()) return Value::of(call.value.as_real());
  if (call.value.is(Kind::text)) {
    if (const auto real = read_real(text_of(call.value))) return Value::of(*real);
  }
  return bound.has(0) ? bound[0] : Value::of(0.0);
}

Value absolute(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  require_defined(call.value);
  if (!call.value.is_number())
    fail(fmt::format("{} needs a number, not a value of type '{}'.", call.title(), type_name(call.value)));
  if (call.value.is(Kind::real)) return Value::of(std::abs(call.value.real));
  return call.value.integer < 0 ? negative(call.value) : positive(call.value);
}

/// A number rounded to digits as Python's round() does, from its exact decimal form.
double rounded(double number, std::int64_t digits) {
  if (digits > 300 || !std::isfinite(number)) return number;
  if (digits < -300) return std::copysign(0.0, number);
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", number, digits).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(number / unit) * unit;
}

Value round_number(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"precision", "method"});
  require_defined(call.value);
  if (!call.value.is_number())
    fail(fmt::format("{} needs a number, not a value of type '{}'.", call.title(), type_name(call.value)));
  const auto digits = bound.integer(0, 0);
  const auto method = bound.has(1) ? bound.text(1) : "common";
  if (method == "common") {
    if (call.value.is_integer() && digits >= 0) return positive(call.value);
    const double result = rounded(call.value.as_real(), digits);
    return call.value.is_integer() ? Value::of(static_cast<std::int64_t>(result)) : Value::of(result);
  }
  if (method != "ceil" && method != "floor")
    fail(call.title() + " needs the method 'common', 'ceil' or 'floor'.");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = call.value.as_real() * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

const Filters& text_filters() {
  static const Filters filters = {
      {"trim", trim},
      {"upper", change_case_filter},
      {"lower", change_case_filter},
      {"capitalize", change_case_filter},
      {"title", title_filter},
      {"replace", replace_filter},
      {"string", string_filter},
      {"safe", mark_safe},
      {"e", escape},
      {"escape", escape},
      {"forceescape", escape},
      {"center", center},
      {"format", format_filter},
      {"indent", indent},
      {"wordcount", count_words},
      {"tojson", to_json_filter},
      {"int", to_integer},
      {"float", to_real},
      {"abs", absolute},
      {"round", round_number},
  };
  return filters;
}

}  // namespace lockstep::jinja
