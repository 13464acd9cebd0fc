#include <charconv>
#include <optional>

#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The first of these variables that is set to something.
struct Setting {
  std::string name;
  std::string value;
};

std::optional<Setting> first_set(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto value = find_variable(environment, name);
    if (value && !value->empty()) return Setting{name, *value};
  }
  return std::nullopt;
}

template <class Number>
Number number_of(const Setting& setting, Number most, const char* expected) {
  Number number{};
  const char* end = setting.value.data() + setting.value.size();
  const auto [stop, failure] = std::from_chars(setting.value.data(), end, number);
  if (failure == std::errc() && stop == end && number >= Number{0} && number <= most) return number;
  throw UsageError("environment variable " + setting.name + "='" + setting.value + "': expected " + expected);
}

std::string lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

CollectiveCheckLevel check_of(const Setting& setting) {
  const std::string value = lower(setting.value);
  if (value == "detail") return CollectiveCheckLevel::detail;
  // PyTorch's OFF is its default: it does not ask for less than ours.
  if (value == "off") {
    return setting.name == "LOCKSTEP_DEBUG" ? CollectiveCheckLevel::off : CollectiveCheckLevel::every_call;
  }
  if (value == "info") return CollectiveCheckLevel::every_call;
  throw UsageError("environment variable " + setting.name + "='" + setting.value +
                   "': expected off, info or detail");
}

}  // namespace

DiagnosticsOptions DiagnosticsOptions::from_environment(const Environment& environment) {
  DiagnosticsOptions options;
  if (const auto warn = first_set(environment, {"LOCKSTEP_WARN_AFTER"})) {
    const double seconds = number_of(*warn, 1e8, "a number of seconds, 0 for never");
    options.warn_after = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }
  if (const auto folder = first_set(environment, {"LOCKSTEP_TRACE_DIR"})) options.trace_dir = folder->value;
  if (const auto entries = first_set(environment, {"LOCKSTEP_TRACE_ENTRIES", "TORCH_FR_BUFFER_SIZE"})) {
    options.trace_entries = static_cast<std::size_t>(number_of(*entries, 10'000'000L, "a number of entries"));
  }
  if (const auto check = first_set(environment, {"LOCKSTEP_DEBUG", "TORCH_DISTRIBUTED_DEBUG"})) {
    options.check = check_of(*check);
  }
  return options;
}

}  // namespace lockstep
