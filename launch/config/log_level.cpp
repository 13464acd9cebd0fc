#include "config/log_level.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace lockstep::launch {
namespace {

constexpr int kWarning = 30;

/// Python's number of a level.
std::optional<int> level_number(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  if (text == "DEBUG" || text == "INFO" || text == "NOTSET") return kWarning - 10;
  if (text == "WARNING" || text == "WARN") return kWarning;
  if (text == "ERROR" || text == "CRITICAL" || text == "FATAL") return kWarning + 10;
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

LogLevel log_level(const Environment& environment, std::vector<std::string>& notices) {
  const auto text = find_variable(environment, "LOGLEVEL");
  if (!text || text->empty()) return LogLevel::warning;
  const auto number = level_number(*text);
  if (!number) {
    notices.push_back("LOGLEVEL '" + *text + "': expected DEBUG, INFO, WARNING, ERROR or CRITICAL");
    return LogLevel::warning;
  }
  if (*number < kWarning) return LogLevel::info;
  return *number == kWarning ? LogLevel::warning : LogLevel::error;
}

}  // namespace lockstep::launch
