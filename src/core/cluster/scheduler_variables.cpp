#include "core/cluster/scheduler_variables.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::variables {
namespace {

constexpr int kMostEntries = 65'536;

[[noreturn]] void malformed(std::string_view name, std::string_view value, const std::string& expected) {
  throw UsageError(fmt::format(
      "environment variable {}='{}': expected {}. The scheduler sets it: do not change it, or unset it.",
      name, value, expected));
}

}  // namespace

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
  if (const auto number = parse_whole_number(value, lowest, highest)) return *number;
  malformed(name, value, describe_whole_numbers(lowest, highest));
}

void contradicts(const Environment& environment, std::string_view name, const std::string& expected) {
  malformed(name, find_variable(environment, name).value_or(""), expected);
}

std::vector<int> run_lengths(std::string_view name, std::string_view text) {
  std::vector<int> result;
  const auto refuse = [&] { malformed(name, text, "numbers as in 2,1(x3)"); };
  for (const std::string_view entry : split_at_commas(text)) {
    const auto open = std::min(entry.find("(x"), entry.size());
    const bool repeated = open < entry.size();
    if (repeated && entry.back() != ')') refuse();
    const auto value = parse_whole_number(entry.substr(0, open), 1);
    const auto times = repeated ? parse_whole_number(entry.substr(open + 2, entry.size() - open - 3), 1) : 1;
    if (!value || !times || *times > kMostEntries - static_cast<int>(result.size())) refuse();
    result.insert(result.end(), static_cast<std::size_t>(*times), *value);
  }
  return result;
}

}  // namespace lockstep::variables
