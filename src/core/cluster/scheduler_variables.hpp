#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::variables {

inline constexpr int kLargest = std::numeric_limits<int>::max();

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
