#include "lockstep/core/options.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/core/error.hpp"
#include "option_values.hpp"
#include "suggestion.hpp"

namespace lockstep {
namespace {

void require_flag_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (name.size() < 2 || name.front() == '-' || !letters || name == "help") {
    throw std::logic_error("option '" + name +
                           "': a name is made of two or more of a-z, 0-9 and hyphens, begins with no "
                           "hyphen and is not 'help'");
  }
}

/// A demand on values of the type T.
template <class T>
OptionSetting check(std::string expected, std::function<bool(const T&)> accepts) {
  OptionCheck check{std::move(expected), [accepts = std::move(accepts)](const OptionValue& value) {
                      const auto* typed = std::get_if<T>(&value);
                      return typed != nullptr && accepts(*typed);
                    }};
  return [check = std::move(check)](OptionSpec& spec) { spec.checks.push_back(check); };
}

using Number = long double;

}  // namespace

OptionSetting at_least(double bound) {
  return check<Number>("at least " + number_text(bound), [bound](Number x) { return x >= bound; });
}
OptionSetting at_most(double bound) {
  return check<Number>("at most " + number_text(bound), [bound](Number x) { return x <= bound; });
}
OptionSetting more_than(double bound) {
  return check<Number>("more than " + number_text(bound), [bound](Number x) { return x > bound; });
}
OptionSetting less_than(double bound) {
  return check<Number>("less than " + number_text(bound), [bound](Number x) { return x < bound; });
}
OptionSetting between(double low, double high) {
  return check<Number>("from " + number_text(low) + " to " + number_text(high),
                       [low, high](Number x) { return x >= low && x <= high; });
}
OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts) {
  return check<std::string>(std::move(expected), std::move(accepts));
}
OptionSetting not_empty() {
  return [](OptionSpec& spec) {
    matching("a text that is not empty", [](const std::string& text) { return !text.empty(); })(spec);
    spec.checks.back().in_help = false;
  };
}

std::string OptionSpec::key() const {
  std::string result = name;
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool OptionSpec::is_switch() const {
  return std::holds_alternative<bool*>(type) || std::holds_alternative<std::optional<bool>*>(type);
}

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

void OptionSet::add(OptionSpec spec) {
  require_flag_name(spec.name);
  for (const auto& other : specs_) {
    const bool same_letter = spec.short_name != 0 && spec.short_name == other.short_name;
    if (other.name == spec.name || same_letter || spec.short_name == 'h') {
      throw std::logic_error("option '" + spec.name + "': the name or its one-letter alias is taken");
    }
  }
  if (spec.section.empty()) spec.section = section_;
  specs_.push_back(std::move(spec));
}

const OptionSpec* OptionSet::find(std::string_view name) const {
  const auto same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const OptionSpec& spec) {
    return std::equal(spec.name.begin(), spec.name.end(), name.begin(), name.end(), same);
  });
  return found == specs_.end() ? nullptr : &*found;
}

void OptionSet::check(void* options) const {
  for (const auto& spec : specs_) {
    if (spec.field) check_value(spec, spec.field(options));
  }
}

void OptionSet::to_json(void* options, nlohmann::json& json) const {
  json = nlohmann::json::object();
  for (const auto& spec : specs_) {
    if (spec.field) json[spec.key()] = json_of(spec.field(options));
  }
}

void OptionSet::from_json(void* options, const nlohmann::json& json) const {
  if (!json.is_object()) {
    throw UsageError("options of " + program_ + ": expected a JSON object, not " + json.type_name() + ".");
  }
  std::vector<std::string> keys;
  for (const auto& spec : specs_) keys.push_back(spec.key());
  for (const auto& [key, value] : json.items()) {
    const OptionSpec* spec = find(key);
    if (spec == nullptr || !spec->field) {
      throw UsageError("unknown JSON key '" + key + "' among the options of " + program_ +
                       did_you_mean(key, keys) + ".");
    }
    assign_json(*spec, spec->field(options), value);
  }
}

std::string OptionSet::to_json_text(void* options) const {
  nlohmann::json json;
  to_json(options, json);
  // Texts may hold bytes that are no UTF-8 (file names do); they are replaced rather than refused.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

void OptionSet::from_json_text(void* options, std::string_view text) const {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw UsageError("options of " + program_ + ": the text is not JSON.");
  from_json(options, json);
}

}  // namespace lockstep
