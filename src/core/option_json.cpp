#include <cmath>
#include <nlohmann/json.hpp>

#include "core/option_values.hpp"
#include "core/suggestion.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

template <class T>
Json json_of(const T& value) {
  return value;
}

// JSON has no such numbers; the library would write null, which reads back as "not given".
Json json_of(const double& value) { return std::isfinite(value) ? Json(value) : Json(number_text(value)); }

Json json_of(const Duration& value) { return value.text(); }

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json(nullptr);
}

struct TextField {
  bool operator()(const std::string*) const { return true; }
  bool operator()(const std::optional<std::string>*) const { return true; }
  bool operator()(const void*) const { return false; }
};

bool is_text(const OptionField& field) {
  return std::visit([](const auto* target) { return TextField()(target); }, field);
}

bool is_duration(const OptionField& field) {
  return std::holds_alternative<Duration*>(field) || std::holds_alternative<std::optional<Duration>*>(field);
}

bool is_double(const OptionField& field) {
  return std::holds_alternative<double*>(field) || std::holds_alternative<std::optional<double>*>(field);
}

/// Takes the value away again from an optional; anything else has none to be without.
bool reset_optional(OptionField field) {
  return std::visit(
      [](auto* target) {
        if constexpr (requires { target->reset(); }) {
          target->reset();
          return true;
        } else {
          return false;
        }
      },
      field);
}

[[noreturn]] void refuse(const OptionSpec& spec, OptionField field, const Json& value,
                         const std::string& place) {
  throw UsageError(place + ": expected " + expected_text(spec, field) + ", not " +
                   value.dump(-1, ' ', false, Json::error_handler_t::replace) + ".");
}

std::vector<std::string> list_of(const OptionSpec& spec, OptionField field, const Json& value,
                                 const std::string& place) {
  std::vector<std::string> items;
  for (const auto& item : value) {
    if (!item.is_string()) refuse(spec, field, value, place);
    items.push_back(item.get<std::string>());
  }
  return items;
}

/// The JSON type must be the field's own: "3" is no number, and 1 is not true.
void assign_json(const OptionSpec& spec, OptionField field, const Json& value) {
  const std::string place = "JSON key '" + spec.key() + "'";
  const bool list = std::holds_alternative<std::vector<std::string>*>(field);
  const bool text = is_text(field);
  if (value.is_null()) {
    if (!reset_optional(field)) refuse(spec, field, value, place);
  } else if (value.is_array() && list) {
    assign_list(spec, field, list_of(spec, field, value, place), place);
  } else if (value.is_string() && (text || is_duration(field) || (is_double(field) && spec.non_finite))) {
    assign_text(spec, field, value.get<std::string>(), place);
  } else if ((value.is_number() && !text && !spec.boolean && !list) || (value.is_boolean() && spec.boolean)) {
    assign_text(spec, field, value.dump(), place);
  } else {
    refuse(spec, field, value, place);
  }
}

std::string unknown_key(const OptionSet& set, const std::string& key) {
  std::vector<std::string> keys;
  for (const auto& spec : set.specs()) keys.push_back(spec.key());
  return "unknown JSON key '" + key + "' among the options of " + set.program() + did_you_mean(key, keys) +
         ".";
}

}  // namespace

void OptionSet::to_json(void* options, Json& json) const {
  json = Json::object();
  for (const auto& spec : specs_) {
    if (!spec.field) continue;
    json[spec.key()] = std::visit([](const auto* source) { return json_of(*source); }, spec.field(options));
  }
}

void OptionSet::from_json(void* options, const Json& json) const {
  if (!json.is_object()) {
    throw UsageError("options of " + program_ + ": expected a JSON object, not " +
                     std::string(json.type_name()) + ".");
  }
  for (const auto& [key, value] : json.items()) {
    const OptionSpec* spec = find(key);
    if (spec == nullptr || !spec->field) throw UsageError(unknown_key(*this, key));
    assign_json(*spec, spec->field(options), value);
  }
}

std::string OptionSet::to_json_text(void* options) const {
  Json json;
  to_json(options, json);
  // Texts may hold bytes that are no UTF-8 (file names do); they are replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void OptionSet::from_json_text(void* options, std::string_view text) const {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw UsageError("options of " + program_ + ": the text is not JSON.");
  from_json(options, json);
}

}  // namespace lockstep
