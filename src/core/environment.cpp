#include "lockstep/core/environment.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/variables.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

Environment process_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> find_variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

void set_default_variable(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

}  // namespace lockstep

namespace lockstep::variables {
namespace {

constexpr int kMostEntries = 65'536;

[[noreturn]] void malformed(std::string_view name, std::string_view value, const std::string& expected) {
  throw UsageError(fmt::format(
      "environment variable {}='{}': expected {}. The scheduler sets it: do not change it, or unset it.",
      name, value, expected));
}

}  // namespace

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  for (auto comma = text.find(','); comma != std::string_view::npos; comma = text.find(',')) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

std::optional<int> whole_number(std::string_view text, int lowest, int highest) {
  const auto number = parse_number<int>(text);
  return number && *number >= lowest && *number <= highest ? number : std::nullopt;
}

std::string whole_number_text(int lowest, int highest) {
  return highest == kLargest ? fmt::format("an integer from {}", lowest)
                             : fmt::format("an integer from {} to {}", lowest, highest);
}

std::string scheduler_text(const Environment& environment, std::string_view name) {
  const auto value = find_variable(environment, name);
  if (value) return *value;
  throw UsageError(fmt::format(
      "environment variable {} is not set, though others of the same scheduler are. Set RANK, WORLD_SIZE, "
      "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT yourself, or start the program with "
      "'lockstep run'.",
      name));
}

int scheduler_integer(const Environment& environment, std::string_view name, int lowest, int highest) {
  const std::string value = scheduler_text(environment, name);
  if (const auto number = whole_number(value, lowest, highest)) return *number;
  malformed(name, value, whole_number_text(lowest, highest));
}

void contradicts(const Environment& environment, std::string_view name, const std::string& expected) {
  malformed(name, find_variable(environment, name).value_or(""), expected);
}

std::vector<int> run_lengths(std::string_view name, std::string_view text) {
  std::vector<int> result;
  const auto refuse = [&] { malformed(name, text, "numbers as in 2,1(x3)"); };
  for (const std::string_view entry : split_list(text)) {
    const auto open = std::min(entry.find("(x"), entry.size());
    const bool repeated = open < entry.size();
    if (repeated && entry.back() != ')') refuse();
    const auto value = whole_number(entry.substr(0, open), 1);
    const auto times = repeated ? whole_number(entry.substr(open + 2, entry.size() - open - 3), 1) : 1;
    if (!value || !times || *times > kMostEntries - static_cast<int>(result.size())) refuse();
    result.insert(result.end(), static_cast<std::size_t>(*times), *value);
  }
  return result;
}

}  // namespace lockstep::variables
