#pragma once

#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::variables {

inline constexpr int kLargest = std::numeric_limits<int>::max();

/// Parses the whole text as a number; otherwise nothing.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// The text without white space around it.
std::string_view stripped(std::string_view text);

/// Splits at commas. An empty text has one part, which is empty.
std::vector<std::string_view> split_list(std::string_view text);

/// The text as an integer within the bounds, otherwise nothing.
std::optional<int> whole_number(std::string_view text, int lowest = 0, int highest = kLargest);

/// For messages: "an integer from 1 to 65535".
std::string whole_number_text(int lowest, int highest);

/// The value of a variable that a scheduler sets. Throws UsageError if it is missing or malformed.
std::string scheduler_text(const Environment& environment, std::string_view name);
int scheduler_integer(const Environment& environment, std::string_view name, int lowest = 0,
                      int highest = kLargest);

/// Throws UsageError: the variable does not have the value that other variables require.
[[noreturn]] void contradicts(const Environment& environment, std::string_view name,
                              const std::string& expected);

/// Parses Slurm's run-length list: "2,1(x2)" is 2, 1, 1. Throws UsageError, with the name of the variable,
/// for any other text, numbers below 1, and more than 65536 entries.
std::vector<int> run_lengths(std::string_view name, std::string_view text);

}  // namespace lockstep::variables
