#include "core/option_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "core/json_text.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

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
  const std::string word = to_lower_case(text);
  const auto is_one_of = [&](const auto&... words) { return ((word == words) || ...); };
  if (is_one_of("true", "1", "yes", "on")) return true;
  if (is_one_of("false", "0", "no", "off")) return false;
  return kNotOfTheType;
}

template <class Number>
Json read_number(const std::string& text) {
  const auto number = parse_number<Number>(text);
  return number ? Json(*number) : kNotOfTheType;
}

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
  Type operator()(const bool*) const {
    return {"true or false", "BOOL", [](auto& text) { return read_bool(text); }};
  }
  Type operator()(const int*) const { return {"a 32-bit integer", "N", read_number<int>}; }
  Type operator()(const std::int64_t*) const { return {"a 64-bit integer", "N", read_number<std::int64_t>}; }
  Type operator()(const std::uint64_t*) const {
    return {"an unsigned 64-bit integer", "N", read_number<std::uint64_t>};
  }
  Type operator()(const double*) const { return {"a number", "X", read_number<double>}; }
  Type operator()(const std::string*) const {
    return {"a string", "TEXT", [](auto& text) { return Json(text); }};
  }
  Type operator()(const Texts*) const { return {"comma-separated strings", "A,B", read_list}; }
  Type operator()(const Duration*) const {
    return {"a duration: steps, or a number followed by ep, ba, sp, dur or sec", "DURATION", read_duration};
  }
  Type operator()(const OptionEnum&) const { return (*this)(static_cast<const std::string*>(nullptr)); }
  template <class T>
  Type operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
};

Type type_of(const OptionSpec& spec) { return std::visit(TypeOf(), spec.type); }

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
          if (value.is_null()) {
            target->reset();
          } else {
            target->emplace(value.get<std::decay_t<decltype(**target)>>());
          }
        } else {
          value.get_to(*target);
        }
      },
      field);
}

std::string to_text(const Json& value) {
  if (value.is_string()) return value;
  if (value.is_array()) return list_text(value);
  return value.is_number_float() ? number_text(value) : json_text(value);
}

bool is_duration(const OptionSpec& spec) { return type_of(spec).read == read_duration; }

bool meets_demands(const OptionSpec& spec, const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return meets_demands(spec, item); });
  }
  if (value.is_number_float() && !std::isfinite(value.get<double>()) && !spec.non_finite) return false;
  const auto& choices = spec.choices;
  if (!choices.empty() && std::ranges::find(choices, to_text(value)) == choices.end()) return false;
  const Json checked = is_duration(spec) ? Json(value.get<Duration>().value()) : value;
  return std::ranges::all_of(spec.checks, [&](const OptionCheck& check) { return check.accepts(checked); });
}

void demand(const OptionSpec& spec, const Json& value, const std::string& text, const std::string& source) {
  if (!value.is_discarded() && meets_demands(spec, value)) return;
  throw UsageError(fmt::format("{} '{}': expected {}{}.", source, text, expected_text(spec),
                               did_you_mean(text, spec.choices)));
}

void assign(const OptionSpec& spec, OptionField field, const Json& value, const std::string& text,
            const std::string& source) {
  demand(spec, value, text, source);
  store(field, value);
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

/// An empty choice stands for the default and has no name.
std::string join_choices(const OptionSpec& spec, const char* separator) {
  Texts named = spec.choices;
  std::erase(named, "");
  return fmt::format("{}", fmt::join(named, separator));
}

}  // namespace

void assign_text(const OptionSpec& spec, OptionField field, const std::string& text,
                 const std::string& source) {
  assign(spec, field, type_of(spec).read(text), text, source);
}

void assign_json(const OptionSpec& spec, OptionField field, const Json& value) {
  const std::string source = fmt::format("JSON key '{}'", spec.key());
  const bool optional = std::visit([](auto target) { return kIsOptional<decltype(target)>; }, field);
  if (value.is_null() && optional) return store(field, value);
  if (!has_type(spec, value)) {
    throw UsageError(fmt::format("{}: expected {}, not {}.", source, expected_text(spec), json_text(value)));
  }
  if (value.is_array()) return assign(spec, field, value, list_text(value), source);
  assign_text(spec, field, value.is_string() ? value.get<std::string>() : json_text(value), source);
}

Json json_of(OptionField field) {
  const Json value = stored(field);
  // The library would write null, which is read back as "not set".
  const bool finite = !value.is_number_float() || std::isfinite(value.get<double>());
  return finite ? value : Json(to_text(value));
}

std::optional<std::string> value_text(OptionField field) {
  const Json value = stored(field);
  if (value.is_null()) return std::nullopt;
  return to_text(value);
}

void FieldValues::note(const OptionSpec& spec, OptionField field, const std::string& source) {
  const void* const address = std::visit(
      [](auto target) -> const void* {
        if constexpr (std::is_same_v<decltype(target), OptionEnum>) {
          return target.field;
        } else {
          return target;
        }
      },
      field);
  fields_[address][spec.name] = {source, value_text(field).value_or("")};
}

void FieldValues::check() const {
  for (const auto& [address, options] : fields_) {
    const Given& first = options.begin()->second;
    for (const auto& [name, given] : options) {
      if (given.value == first.value) continue;
      throw UsageError(
          fmt::format("{} {} contradicts {} {}: they are two names of one option. Give one of them.",
                      first.source, first.value, given.source, given.value));
    }
  }
}

void check_value(const OptionSpec& spec, OptionField field) {
  const Json value = stored(field);
  if (!value.is_null()) demand(spec, value, to_text(value), "option " + spec.key());
}

std::string demands_text(const OptionSpec& spec, bool in_help) {
  Texts demands;
  for (const auto& check : spec.checks) {
    if (check.in_help || !in_help) demands.push_back(check.expected);
  }
  // Without its own metavar, the choices are shown in place of the value.
  const bool choices = !spec.choices.empty() && !(in_help && spec.metavar.empty());
  if (choices) demands.push_back("one of " + join_choices(spec, ", "));
  return fmt::format("{}", fmt::join(demands, ", "));
}

std::string expected_text(const OptionSpec& spec) {
  const std::string type = type_of(spec).name;
  const std::string demands = demands_text(spec);
  if (demands.empty()) return type;
  // Every argument is a string, so the constraint alone says more.
  return type == "a string" ? demands : type + ", " + demands;
}

std::string metavar_of(const OptionSpec& spec) {
  if (!spec.metavar.empty()) return spec.metavar;
  return spec.choices.empty() ? type_of(spec).metavar : "{" + join_choices(spec, ",") + "}";
}

std::string number_text(double number) {
  // "1000000" is more readable than "1e+06", which to_chars prefers.
  if (std::abs(number) < 1e15 && number == std::trunc(number))
    return fmt::format("{}", static_cast<std::int64_t>(number));
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return {buffer, end};
}

}  // namespace lockstep
