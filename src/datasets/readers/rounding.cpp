#include "datasets/readers/rounding.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <mutex>
#include <set>
#include <utility>

namespace lockstep::readers {
namespace {

/// Whether this is the first call for a column. A process has few files whose integers are rounded; beyond
/// some of them there is no more to be learned.
bool is_first(const std::string& file, const std::string& column) {
  constexpr std::size_t kMost = 1000;
  static std::mutex lock;
  static std::set<std::pair<std::string, std::string>> known;
  const std::lock_guard guard(lock);
  return known.size() < kMost && known.emplace(file, column).second;
}

}  // namespace

bool is_exact(std::string_view integer, double number) {
  const bool minus = integer.starts_with('-');
  integer.remove_prefix(minus || integer.starts_with('+') ? 1 : 0);
  integer.remove_prefix(std::min(integer.find_first_not_of('0'), integer.size()));
  // All digits of a whole number.
  return fmt::format("{:.0f}", minus ? -number : number) == (integer.empty() ? "0" : integer);
}

void warn_rounded(const std::string& file, const std::string& location, const std::string& column,
                  std::string_view integer, double number) {
  if (!is_first(file, column)) return;
  std::cerr
      << fmt::format(
             "lockstep: warning: {}, column '{}': the integer {} was rounded to {:.0f}, because the column "
             "is float64, which has 53 significant bits. To keep all digits, set a type such as int64, "
             "uint64 or string in LoadOptions::features. (Reported once per column.)\n",
             location, column, integer, number)
      << std::flush;
}

}  // namespace lockstep::readers
