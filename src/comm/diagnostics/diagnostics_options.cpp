#include <fmt/core.h>
#include <strings.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "core/text.hpp"
#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Setting {
  std::string name;
  std::string value;

  [[noreturn]] void refuse(const char* expected) const {
    throw UsageError(fmt::format("environment variable {}='{}': expected {}", name, value, expected));
  }
};

/// The first of these variables that is set and not empty.
std::optional<Setting> first_set(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto value = find_variable(environment, name);
    if (value && !value->empty()) return Setting{name, *value};
  }
  return std::nullopt;
}

template <class Number>
Number number_of(const Setting& setting, Number most, const char* expected) {
  const auto number = parse_number<Number>(setting.value);
  if (!number || !(*number >= Number{0} && *number <= most)) setting.refuse(expected);
  return *number;
}

CollectiveCheckLevel check_of(const Setting& setting) {
  const auto is = [&](const char* word) { return ::strcasecmp(setting.value.c_str(), word) == 0; };
  if (is("detail")) return CollectiveCheckLevel::detail;
  // PyTorch's OFF is its default, so it does not mean less than Lockstep's default.
  if (is("off") && setting.name == "LOCKSTEP_DEBUG") return CollectiveCheckLevel::off;
  if (is("off") || is("info")) return CollectiveCheckLevel::info;
  setting.refuse("off, info or detail");
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
