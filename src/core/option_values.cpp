// The values of options: their types, how text and JSON become one, and what is demanded of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "suggestion.hpp"

namespace lockstep {

using variables::number_text;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

// The JSON library finds these two by argument-dependent lookup.
static void to_json(Json& json, const Duration& value) { json = value.text(); }
static void from_json(const Json& json, Duration& value) {
  value = Duration(std::string_view(json.get_ref<const std::string&>()));
}

namespace {

/// A type of option: its name in messages, the placeholder of its value in `--help`, and how text is parsed;
/// the result is "discarded" if the text is not of the type.
struct Type {
  const char* name;
  const char* metavar;
  Json (*read)(const std::string& text);
};

const Json kNotOfTheType = Json::value_t::discarded;

Json read_bool(const std::string& text) {
  std::string word = text;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_one_of = [&](const auto&... words) { return ((word == words) || ...); };
  if (is_one_of("true", "1", "yes", "on")) return true;
  if (is_one_of("false", "0", "no", "off")) return false;
  return kNotOfTheType;
}

template <class Number>
Json read_number(const std::string& text) {
  const auto number = variables::parse_number<Number>(text);
  return number ? Json(*number) : kNotOfTheType;
}

Json read_string(const std::string& text) { return text; }

Json read_duration(const std::string& text) {
  try {
    return Duration(std::string_view(text)).text();
  } catch (const UsageError&) {
    return kNotOfTheType;
  }
}

/// Splits at commas; two commas in a row are a comma inside an item, as in torchrun's lists.
Json read_list(const std::string& text) {
  Texts items(text.empty() ? 0 : 1);
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

std::string list_text(const Json& items) {
  Texts texts;
  for (std::string item : items) {
    for (auto comma = item.find(','); comma != std::string::npos; comma = item.find(',', comma + 2))
      item.insert(comma, 1, ',');
    texts.push_back(std::move(item));
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

struct TypeOf {
  Type operator()(const bool*) const { return {"true or false", "BOOL", read_bool}; }
  Type operator()(const int*) const { return {"a 32-bit integer", "N", read_number<int>}; }
  Type operator()(const std::int64_t*) const { return {"a 64-bit integer", "N", read_number<std::int64_t>}; }
  Type operator()(const std::uint64_t*) const {
    return {"an unsigned 64-bit integer", "N", read_number<std::uint64_t>};
  }
  Type operator()(const double*) const { return {"a number", "X", read_number<double>}; }
  Type operator()(const std::string*) const { return {"a string", "TEXT", read_string}; }
  Type operator()(const OptionEnum&) const { return {"a string", "TEXT", read_string}; }
  Type operator()(const Texts*) const { return {"comma-separated strings", "A,B", read_list}; }
  Type operator()(const Duration*) const {
    return {"a duration: steps, or a number followed by ep, ba, sp, dur or sec", "DURATION", read_duration};
  }
  template <class T>
  Type operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
};

Type type_of(const OptionSpec& spec) { return std::visit(TypeOf(), spec.type); }

bool is_duration(const OptionSpec& spec) { return type_of(spec).read == read_duration; }

template <class Target>
constexpr bool kIsOptional = requires(Target target) {
  target->reset();
};

/// Null for an optional without a value.
Json stored(OptionField field) {
  return std::visit(
      [](auto target) -> Json {
        if constexpr (std::is_same_v<decltype(target), OptionEnum>) {
          return target.read(target.field);
        } else if constexpr (kIsOptional<decltype(target)>) {
          return *target ? Json(**target) : Json();
        } else {
          return *target;
        }
      },
      field);
}

void store(OptionField field, const Json& value) {
  std::visit(
      [&](auto target) {
        if constexpr (std::is_same_v<decltype(target), OptionEnum>) {
          target.write(target.field, value.get<std::string>());
        } else if constexpr (kIsOptional<decltype(target)>) {
          value.is_null() ? target->reset()
                          : void(target->emplace(value.get<std::decay_t<decltype(**target)>>()));
        } else {
          value.get_to(*target);
        }
      },
      field);
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value;
  if (value.is_array()) return list_text(value);
  return value.is_number_float() ? number_text(value) : value.dump();
}

bool meets_demands(const OptionSpec& spec, const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return meets_demands(spec, item); });
  }
  if (value.is_number_float() && !std::isfinite(value.get<double>()) && !spec.non_finite) return false;
  const auto& choices = spec.choices;
  if (!choices.empty() && std::ranges::find(choices, text_of(value)) == choices.end()) return false;
  const Json checked = is_duration(spec) ? Json(value.get<Duration>().value()) : value;
  return std::ranges::all_of(spec.checks, [&](const OptionCheck& check) { return check.accepts(checked); });
}

/// Throws UsageError, with the text of the value, if it is not allowed.
void demand(const OptionSpec& spec, const Json& value, const std::string& text, const std::string& place) {
  if (!value.is_discarded() && meets_demands(spec, value)) return;
  throw UsageError(
      fmt::format("{} '{}': expected {}{}.", place, text, spec.expected(), did_you_mean(text, spec.choices)));
}

/// Whether a JSON value has the option's own type: "3" is not a number, and 1 is not true.
bool has_type(const OptionSpec& spec, const Json& value) {
  const Json example = type_of(spec).read("1");
  if (value.is_string()) return example.is_string() || (example.is_number_float() && spec.non_finite);
  if (value.is_number()) return example.is_number() || is_duration(spec);
  if (value.is_boolean()) return example.is_boolean();
  return example.is_array() && value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
}

OptionSetting check(std::string expected, std::function<bool(const Json&)> accepts, bool in_help = true) {
  return [check = OptionCheck{std::move(expected), std::move(accepts), in_help}](OptionSpec& spec) {
    spec.checks.push_back(check);
  };
}

/// `long double` holds each 64-bit integer exactly on x86-64 and aarch64.
template <class Accepts>
OptionSetting check_number(std::string expected, Accepts accepts) {
  return check(std::move(expected), [accepts](const Json& value) {
    return value.is_number() && accepts(value.get<long double>());
  });
}

template <class Compare>
OptionSetting check_bound(const char* words, double bound, Compare compare) {
  return check_number(fmt::format("{} {}", words, number_text(bound)),
                      [compare, bound](long double x) { return compare(x, bound); });
}

}  // namespace

OptionSetting at_least(double bound) { return check_bound("at least", bound, std::greater_equal<>()); }
OptionSetting at_most(double bound) { return check_bound("at most", bound, std::less_equal<>()); }
OptionSetting more_than(double bound) { return check_bound("more than", bound, std::greater<>()); }
OptionSetting less_than(double bound) { return check_bound("less than", bound, std::less<>()); }
OptionSetting between(double low, double high) {
  return check_number(fmt::format("from {} to {}", number_text(low), number_text(high)),
                      [low, high](long double x) { return x >= low && x <= high; });
}
OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts) {
  return check(std::move(expected), [accepts = std::move(accepts)](const Json& value) {
    return value.is_string() && accepts(value.get_ref<const std::string&>());
  });
}
OptionSetting not_empty() {
  return check(
      "a non-empty string", [](const Json& value) { return value.is_string() && value != ""; }, false);
}

void OptionSpec::assign(void* options, const std::string& text, const std::string& place) const {
  const Json value = type_of(*this).read(text);
  demand(*this, value, text, place);
  store(field(options), value);
}

void OptionSpec::assign_json(void* options, const Json& value) const {
  const std::string place = fmt::format("JSON key '{}'", key());
  if (value.is_null() && std::visit([](auto target) { return kIsOptional<decltype(target)>; }, type))
    return store(field(options), value);
  if (!has_type(*this, value)) {
    throw UsageError(fmt::format("{}: expected {}, not {}.", place, expected(),
                                 value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  if (!value.is_array())
    return assign(options, value.is_string() ? value.get<std::string>() : value.dump(), place);
  demand(*this, value, list_text(value), place);
  store(field(options), value);
}

Json OptionSpec::json(void* options) const {
  const Json value = stored(field(options));
  // The library would write null, which is read back as "not set".
  const bool finite = !value.is_number_float() || std::isfinite(value.get<double>());
  return finite ? value : Json(text_of(value));
}

std::string OptionSpec::text(void* options) const {
  const Json value = stored(field(options));
  return value.is_null() ? "" : text_of(value);
}

void OptionSpec::check(void* options) const {
  const Json value = stored(field(options));
  if (!value.is_null()) demand(*this, value, text_of(value), "option " + key());
}

std::string OptionSpec::demands(bool in_help) const {
  Texts texts;
  for (const auto& each : checks) {
    if (each.in_help || !in_help) texts.push_back(each.expected);
  }
  // Without its own metavar, the choices are shown in place of the value.
  const bool shows_choices = !choices.empty() && !(in_help && metavar.empty());
  if (shows_choices) texts.push_back(fmt::format("one of {}", fmt::join(choices, ", ")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string OptionSpec::expected() const {
  const std::string name_of_type = type_of(*this).name;
  const std::string demanded = demands();
  if (demanded.empty()) return name_of_type;
  // Every argument is a string, so the constraint alone says more.
  return name_of_type == "a string" ? demanded : name_of_type + ", " + demanded;
}

std::string OptionSpec::placeholder() const {
  if (!metavar.empty()) return metavar;
  return choices.empty() ? type_of(*this).metavar : fmt::format("{{{}}}", fmt::join(choices, ","));
}

std::string OptionSpec::key() const {
  std::string result = name;
  std::ranges::replace(result, '-', '_');
  return result;
}

bool OptionSpec::is_switch() const { return type_of(*this).read == read_bool; }

}  // namespace lockstep
