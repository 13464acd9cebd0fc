#include "core/option_values.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/suggestion.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

template <class T>
struct Unwrapped {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};
/// The type of the value behind a pointer of an OptionField, without its std::optional.
template <class Pointer>
using Value = typename Unwrapped<std::remove_pointer_t<Pointer>>::type;

/// `text` is not of the type.
struct WrongType {};

template <class T>
std::string type_text() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  if constexpr (std::is_same_v<T, Duration>)
    return "a duration: steps, or a number with ep, ba, sp, dur or sec after it";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "texts with commas between them";
  if constexpr (std::is_same_v<T, int>) return "a whole number of at most 32 bits";
  if constexpr (std::is_same_v<T, std::int64_t>) return "a whole number of at most 64 bits";
  if constexpr (std::is_same_v<T, std::uint64_t>) return "a whole number from 0, of at most 64 bits";
}

bool parse_bool(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto* yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const auto* no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  throw WrongType();
}

template <class Number>
Number parse_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || stop != end) throw WrongType();
  return number;
}

Duration parse_duration(const std::string& text) {
  try {
    return Duration(std::string_view(text));
  } catch (const UsageError&) {
    throw WrongType();
  }
}

double parse_double(const OptionSpec& spec, const std::string& text) {
  const double number = parse_number<double>(text);
  if (!std::isfinite(number) && !spec.non_finite) throw WrongType();
  return number;
}

/// Items between commas; two commas in a row are one comma inside an item, as in torchrun's lists.
std::vector<std::string> parse_list(const std::string& text) {
  std::vector<std::string> items;
  if (text.empty()) return items;
  items.emplace_back();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool doubled = text[i] == ',' && i + 1 < text.size() && text[i + 1] == ',';
    if (text[i] == ',' && !doubled) {
      items.emplace_back();
      continue;
    }
    items.back() += text[i];
    if (doubled) ++i;
  }
  return items;
}

std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += ',';
    for (const char letter : items[i]) text += letter == ',' ? std::string(",,") : std::string(1, letter);
  }
  return text;
}

template <class T>
T parse_as(const OptionSpec& spec, const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(text);
  } else if constexpr (std::is_same_v<T, double>) {
    return parse_double(spec, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return parse_list(text);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return parse_duration(text);
  } else {
    return parse_number<T>(text);
  }
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return number_text(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return list_text(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return value.text();
  } else {
    return std::to_string(value);
  }
}

template <class T>
OptionValue checkable(const T& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, Duration>) {
    return static_cast<long double>(value.value());
  } else {
    return static_cast<long double>(value);
  }
}

template <class T>
bool meets_demands(const OptionSpec& spec, const T& value) {
  if (!spec.choices.empty() &&
      std::find(spec.choices.begin(), spec.choices.end(), text_of(value)) == spec.choices.end()) {
    return false;
  }
  return std::all_of(spec.checks.begin(), spec.checks.end(),
                     [&](const OptionCheck& check) { return check.accepts(checkable(value)); });
}

bool meets_demands(const OptionSpec& spec, const std::vector<std::string>& items) {
  return std::all_of(items.begin(), items.end(), [&](const auto& item) { return meets_demands(spec, item); });
}

[[noreturn]] void refuse(const OptionSpec& spec, const OptionField& field, const std::string& text,
                         const std::string& place) {
  throw UsageError(place + " '" + text + "': expected " + expected_text(spec, field) +
                   did_you_mean(text, spec.choices) + ".");
}

}  // namespace

void assign_text(const OptionSpec& spec, OptionField field, const std::string& text,
                 const std::string& place) {
  std::visit(
      [&](auto* target) {
        using T = Value<decltype(target)>;
        try {
          T value = parse_as<T>(spec, text);
          if (!meets_demands(spec, value)) refuse(spec, field, text, place);
          *target = std::move(value);
        } catch (const WrongType&) {
          refuse(spec, field, text, place);
        }
      },
      field);
}

void assign_list(const OptionSpec& spec, OptionField field, std::vector<std::string> items,
                 const std::string& place) {
  auto** target = std::get_if<std::vector<std::string>*>(&field);
  if (target == nullptr || !meets_demands(spec, items)) refuse(spec, field, list_text(items), place);
  **target = std::move(items);
}

std::optional<std::string> value_text(OptionField field) {
  return std::visit(
      [](const auto* source) -> std::optional<std::string> {
        if constexpr (Unwrapped<std::remove_cvref_t<decltype(*source)>>::optional) {
          if (!*source) return std::nullopt;
          return text_of(**source);
        } else {
          return text_of(*source);
        }
      },
      field);
}

void check_value(const OptionSpec& spec, OptionField field, const std::string& place) {
  if (auto** items = std::get_if<std::vector<std::string>*>(&field)) {
    assign_list(spec, field, **items, place);
  } else if (const auto text = value_text(field)) {
    assign_text(spec, field, *text, place);
  }
}

std::string demands_text(const OptionSpec& spec) {
  std::string text;
  for (const auto& check : spec.checks) text += (text.empty() ? "" : ", ") + check.expected;
  if (spec.choices.empty()) return text;
  text += text.empty() ? "one of " : ", one of ";
  for (std::size_t i = 0; i < spec.choices.size(); ++i) text += (i > 0 ? ", " : "") + spec.choices[i];
  return text;
}

std::string expected_text(const OptionSpec& spec, OptionField field) {
  const std::string type =
      std::visit([](auto* target) { return type_text<Value<decltype(target)>>(); }, field);
  const std::string demands = demands_text(spec);
  if (demands.empty()) return type;
  // A text is what every argument is, so the demand alone says more.
  return type == "a text" ? demands : type + ", " + demands;
}

std::string number_text(double number) {
  // "1000000" reads better than "1e+06", which is as short.
  if (std::abs(number) < 1e15 && number == std::trunc(number))
    return std::to_string(static_cast<std::int64_t>(number));
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return {buffer, end};
}

}  // namespace lockstep
