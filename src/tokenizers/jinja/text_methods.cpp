#include "tokenizers/jinja/text_methods.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tokenizers/jinja/brace_format.hpp"
#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/text_form.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

/// A call: its text and arguments.
struct TextCall {
  Budget& budget;
  const Value& self;
  const std::string& text;
  const std::string& name;
  const Arguments& arguments;

  Value result(std::string made) const { return Value::text(budget, std::move(made), self.markup); }
  std::string title() const { return name + "()"; }
};
using TextMethod = Value (*)(const TextCall& call);

Value list_of(const TextCall& call, const std::vector<std::string_view>& parts, Kind kind = Kind::list) {
  call.budget.make(parts.size() * sizeof(Value));
  Values items;
  items.reserve(parts.size());
  for (const auto part : parts) items.push_back(call.result(std::string(part)));
  return make_list(call.budget, std::move(items), kind);
}

void take_nothing(const TextCall& call) { const Bound bound(call.title(), call.arguments, {}); }

Value strip(const TextCall& call, Ends ends) {
  const Bound bound(call.title(), call.arguments, {"chars"});
  call.budget.read(call.text.size());
  if (!bound.has(0) || bound[0].is(Kind::none)) return call.result(std::string(strip_space(call.text, ends)));
  call.budget.step(bound.text(0).size() / 16 * (1 + call.text.size() / 16));
  return call.result(std::string(strip_characters(call.text, bound.text(0), ends)));
}

/// The bytes of text[start:stop], of which arguments are characters.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_empty_range = false;
};

Window window_of(const TextCall& call, const Bound& bound, std::size_t position) {
  const auto length = static_cast<std::int64_t>(length_of(call.self));
  const auto clip = [&](std::int64_t at) { return at < 0 ? std::max<std::int64_t>(at + length, 0) : at; };
  const auto start = clip(bound.integer(position, 0));
  const auto stop = std::min(clip(bound.integer(position + 1, length)), length);
  if (start > stop) return {.begin = 0, .end = 0, .is_empty_range = true};
  if (start == 0 && stop == length) return {.begin = 0, .end = call.text.size()};
  call.budget.read(call.text.size());
  return {.begin = byte_of_character(call.text, static_cast<std::size_t>(start)),
          .end = byte_of_character(call.text, static_cast<std::size_t>(stop))};
}

template <class Matches>
Value matches_any(const TextCall& call, const Matches& matches) {
  const Bound bound(call.title(), call.arguments, {"prefix", "start", "end"}, 1);
  const auto window = window_of(call, bound, 1);
  const auto part = std::string_view(call.text).substr(window.begin, window.end - window.begin);
  if (!bound[0].is(Kind::tuple)) return Value::of(!window.is_empty_range && matches(part, bound.text(0)));
  for (const auto& one : items_of(bound[0])) {
    if (!one.is(Kind::text)) fail(fmt::format("{} needs strings in its tuple.", call.title()));
    if (!window.is_empty_range && matches(part, text_of(one))) return Value::of(true);
  }
  return Value::of(false);
}

Value starts_with(const TextCall& call) {
  return matches_any(
      call, [](std::string_view part, const std::string& prefix) { return part.starts_with(prefix); });
}

Value ends_with(const TextCall& call) {
  return matches_any(call,
                     [](std::string_view part, const std::string& suffix) { return part.ends_with(suffix); });
}

/// The character at which a part is found, or -1.
std::int64_t find_part(const TextCall& call, bool from_end) {
  const Bound bound(call.title(), call.arguments, {"sub", "start", "end"}, 1);
  const auto window = window_of(call, bound, 1);
  if (window.is_empty_range) return -1;
  const auto part = std::string_view(call.text).substr(window.begin, window.end - window.begin);
  call.budget.read(part.size());
  const auto found = from_end ? part.rfind(bound.text(0)) : part.find(bound.text(0));
  if (found == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(
      count_characters(std::string_view(call.text).substr(0, window.begin + found)));
}

Value find(const TextCall& call) { return Value::of(find_part(call, false)); }
Value find_last(const TextCall& call) { return Value::of(find_part(call, true)); }

Value index(const TextCall& call) {
  const auto found = find_part(call, call.name == "rindex");
  if (found < 0) fail(fmt::format("{}: the text has no such part.", call.title()));
  return Value::of(found);
}

Value count(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"sub", "start", "end"}, 1);
  const auto window = window_of(call, bound, 1);
  const auto& sub = bound.text(0);
  if (window.is_empty_range) return Value::of(std::int64_t{0});
  const auto part = std::string_view(call.text).substr(window.begin, window.end - window.begin);
  call.budget.read(part.size());
  std::int64_t found = 0;
  if (sub.empty()) return Value::of(static_cast<std::int64_t>(count_characters(part)) + 1);
  for (auto at = part.find(sub); at != std::string_view::npos; at = part.find(sub, at + sub.size())) ++found;
  return Value::of(found);
}

/// Splits at white space, at most `most` times, from the left.
std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_space(text, Ends::left);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(strip_space(text, Ends::right));
      break;
    }
    std::size_t end = 0;
    for (std::size_t position = 0; position < text.size(); end = position) {
      if (is_space(tokenizer::next_character(text, position))) break;
    }
    parts.push_back(text.substr(0, end));
    text = strip_space(text.substr(end), Ends::left);
  }
  return parts;
}

std::vector<std::string_view> split_last_at_space(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_space(text, Ends::right);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(strip_space(text, Ends::left));
      break;
    }
    auto begin = text.size();
    for (auto position = begin; position > 0; begin = position) {
      if (is_space(tokenizer::previous_character(text, position))) break;
    }
    parts.push_back(text.substr(begin));
    text = strip_space(text.substr(0, begin), Ends::right);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const auto found = text.find(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_last_at(std::string_view text, std::string_view separator,
                                            std::int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const auto found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"sep", "maxsplit"});
  const auto most = bound.integer(1, -1);
  const bool from_end = call.name == "rsplit";
  call.budget.read(call.text.size());
  // The parts are no more than the bytes.
  call.budget.make(call.text.size());
  if (!bound.has(0) || bound[0].is(Kind::none)) {
    return list_of(call, from_end ? split_last_at_space(call.text, most) : split_at_space(call.text, most));
  }
  const auto& separator = bound.text(0);
  if (separator.empty()) fail(fmt::format("{}: the separator is empty.", call.title()));
  return list_of(call,
                 from_end ? split_last_at(call.text, separator, most) : split_at(call.text, separator, most));
}

Value split_to_lines(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"keepends"});
  call.budget.read(call.text.size());
  return list_of(call, split_lines(call.text, bound.flag(0)));
}

Value partition(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"sep"}, 1);
  const auto& separator = bound.text(0);
  if (separator.empty()) fail(fmt::format("{}: the separator is empty.", call.title()));
  const bool from_end = call.name == "rpartition";
  call.budget.read(call.text.size());
  const std::string_view text = call.text;
  const auto found = from_end ? text.rfind(separator) : text.find(separator);
  if (found == std::string_view::npos) {
    return from_end ? list_of(call, {"", "", text}, Kind::tuple) : list_of(call, {text, "", ""}, Kind::tuple);
  }
  return list_of(call, {text.substr(0, found), separator, text.substr(found + separator.size())},
                 Kind::tuple);
}

Value replace(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"old", "new", "count"}, 2);
  return call.result(
      replace_text(call.budget, call.text, bound.text(0), bound.text(1), bound.integer(2, -1)));
}

Value join(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"iterable"}, 1);
  Text joined(call.budget);
  bool first = true;
  for (const auto& item : elements_of(call.budget, bound[0])) {
    if (!item.is(Kind::text))
      fail(fmt::format("join() needs strings, not a value of type '{}'.", type_name(item)));
    if (!first) joined.add(call.text);
    first = false;
    joined.add(text_of(item));
  }
  return call.result(joined.take());
}

Value remove_prefix(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"prefix"}, 1);
  return call.result(call.text.substr(call.text.starts_with(bound.text(0)) ? bound.text(0).size() : 0));
}

Value remove_suffix(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"suffix"}, 1);
  const auto cut = call.text.ends_with(bound.text(0)) ? bound.text(0).size() : 0;
  return call.result(call.text.substr(0, call.text.size() - cut));
}

Value change_case(const TextCall& call) {
  take_nothing(call);
  call.budget.read(call.text.size());
  call.budget.make(call.text.size());
  if (call.name == "upper") return call.result(to_upper(call.text));
  if (call.name == "lower") return call.result(to_lower(call.text));
  return call.result(capitalize(call.text));
}

/// Words in title case, letters behind letters in lower case.
Value title(const TextCall& call) {
  take_nothing(call);
  call.budget.make(call.text.size());
  std::string titled;
  bool within = false;
  for (std::size_t position = 0; position < call.text.size();) {
    const auto begin = position;
    const auto code = tokenizer::next_character(call.text, position);
    const auto one = std::string_view(call.text).substr(begin, position - begin);
    titled += within ? to_lower(one) : capitalize(one);
    within = is_letter(code);
  }
  return call.result(std::move(titled));
}

Value swap_case(const TextCall& call) {
  take_nothing(call);
  call.budget.make(call.text.size());
  std::string swapped;
  for (std::size_t position = 0; position < call.text.size();) {
    const auto begin = position;
    tokenizer::next_character(call.text, position);
    const auto one = std::string_view(call.text).substr(begin, position - begin);
    const auto upper = to_upper(one);
    swapped += upper == one ? to_lower(one) : upper;
  }
  return call.result(std::move(swapped));
}

Value justify(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"width", "fillchar"}, 1);
  const auto fill = bound.has(1) ? bound.text(1) : " ";
  if (count_characters(fill) != 1) fail(fmt::format("{}: the fill must be one character.", call.title()));
  const auto characters = static_cast<std::int64_t>(length_of(call.self));
  const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(0, 0) - characters, 0));
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(0, 0), 0));
  const auto left = call.name == "ljust"   ? 0
                    : call.name == "rjust" ? missing
                                           : missing / 2 + (missing & width & 1);
  Text text(call.budget);
  text.add(left, fill);
  text.add(call.text);
  text.add(missing - left, fill);
  return call.result(text.take());
}

Value fill_zeros(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"width"}, 1);
  const auto characters = static_cast<std::int64_t>(length_of(call.self));
  const bool has_sign = call.text.starts_with('-') || call.text.starts_with('+');
  Text text(call.budget);
  if (has_sign) text.add(call.text.substr(0, 1));
  text.add(static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(0, 0) - characters, 0)), "0");
  text.add(std::string_view(call.text).substr(has_sign ? 1 : 0));
  return call.result(text.take());
}

Value expand_tabs(const TextCall& call) {
  const Bound bound(call.title(), call.arguments, {"tabsize"});
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(0, 8), 0));
  Text text(call.budget);
  std::size_t column = 0;
  for (std::size_t position = 0; position < call.text.size();) {
    const auto begin = position;
    const auto code = tokenizer::next_character(call.text, position);
    if (code == U'\t') {
      const auto blanks = size == 0 ? 0 : size - column % size;
      text.add(blanks, " ");
      column += blanks;
      continue;
    }
    text.add(std::string_view(call.text).substr(begin, position - begin));
    column = code == U'\n' || code == U'\r' ? 0 : column + 1;
  }
  return call.result(text.take());
}

template <class Test>
Value all_are(const TextCall& call, const Test& test) {
  take_nothing(call);
  call.budget.read(call.text.size());
  for (std::size_t position = 0; position < call.text.size();) {
    if (!test(tokenizer::next_character(call.text, position))) return Value::of(false);
  }
  return Value::of(!call.text.empty() || call.name == "isascii" || call.name == "isprintable");
}

Value is_all_digits(const TextCall& call) {
  return all_are(call, [](char32_t code) { return is_digit(code); });
}
Value is_all_letters(const TextCall& call) {
  return all_are(call, [](char32_t code) { return is_letter(code); });
}
Value is_all_letters_or_digits(const TextCall& call) {
  return all_are(call, [](char32_t code) { return is_letter(code) || is_digit(code); });
}
Value is_all_space(const TextCall& call) {
  return all_are(call, [](char32_t code) { return is_space(code); });
}
Value is_all_ascii(const TextCall& call) {
  return all_are(call, [](char32_t code) { return code < 0x80; });
}
Value is_all_printable(const TextCall& call) {
  return all_are(call, [](char32_t code) { return is_printable(code); });
}

Value is_in_case(const TextCall& call) {
  take_nothing(call);
  call.budget.make(call.text.size());
  const auto upper = to_upper(call.text);
  const auto lower = to_lower(call.text);
  return Value::of(upper != lower && call.text == (call.name == "isupper" ? upper : lower));
}

Value format(const TextCall& call) {
  return call.result(brace_format(call.budget, call.text, call.arguments));
}

const std::unordered_map<std::string_view, TextMethod>& text_methods() {
  static const std::unordered_map<std::string_view, TextMethod> methods = {
      {"strip", [](const TextCall& call) { return strip(call, Ends::both); }},
      {"lstrip", [](const TextCall& call) { return strip(call, Ends::left); }},
      {"rstrip", [](const TextCall& call) { return strip(call, Ends::right); }},
      {"startswith", starts_with},
      {"endswith", ends_with},
      {"find", find},
      {"rfind", find_last},
      {"index", index},
      {"rindex", index},
      {"count", count},
      {"split", split},
      {"rsplit", split},
      {"splitlines", split_to_lines},
      {"partition", partition},
      {"rpartition", partition},
      {"replace", replace},
      {"join", join},
      {"removeprefix", remove_prefix},
      {"removesuffix", remove_suffix},
      {"upper", change_case},
      {"lower", change_case},
      {"capitalize", change_case},
      {"title", title},
      {"swapcase", swap_case},
      {"center", justify},
      {"ljust", justify},
      {"rjust", justify},
      {"zfill", fill_zeros},
      {"expandtabs", expand_tabs},
      {"isdigit", is_all_digits},
      {"isalpha", is_all_letters},
      {"isalnum", is_all_letters_or_digits},
      {"isspace", is_all_space},
      {"isascii", is_all_ascii},
      {"isprintable", is_all_printable},
      {"isupper", is_in_case},
      {"islower", is_in_case},
      {"format", format},
  };
  return methods;
}

constexpr std::array<std::string_view, 9> kUnsupported = {"casefold",  "encode",       "format_map",
                                                          "isdecimal", "isidentifier", "isnumeric",
                                                          "istitle",   "maketrans",    "translate"};

}  // namespace

bool is_text_method(std::string_view name) {
  return text_methods().contains(name) ||
         std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end();
}

Value call_text_method(Budget& budget, const Value& text, const std::string& name,
                       const Arguments& arguments) {
  const auto found = text_methods().find(name);
  if (found == text_methods().end()) {
    fail(fmt::format("the method '{}' of strings is not supported in chat templates.", name));
  }
  return found->second(
      {.budget = budget, .self = text, .text = text_of(text), .name = name, .arguments = arguments});
}

std::string replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view by,
                         std::int64_t count) {
  budget.read(text.size());
  Text replaced(budget);
  std::size_t position = 0;
  const auto may = [&] { return count < 0 || count-- > 0; };
  if (old.empty()) {
    while (may()) {
      replaced.add(by);
      if (position == text.size()) return replaced.take();
      const auto length = tokenizer::sequence_length(text[position]);
      replaced.add(text.substr(position, length));
      position += length;
    }
  } else {
    for (auto at = text.find(old); at != std::string_view::npos && may(); at = text.find(old, position)) {
      replaced.add(text.substr(position, at - position));
      replaced.add(by);
      position = at + old.size();
    }
  }
  replaced.add(text.substr(position));
  return replaced.take();
}

std::string center_text(Budget& budget, std::string_view text, std::int64_t width) {
  const auto own = Value::text(budget, std::string(text));
  Arguments arguments;
  arguments.positional.push_back(Value::of(width));
  return text_of(call_text_method(budget, own, "center", arguments));
}

}  // namespace lockstep::jinja
