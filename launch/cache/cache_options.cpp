#include "cache/cache_options.hpp"

#include <charconv>
#include <map>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {

const OptionTable<CacheOptions>& cache_option_table() {
  static const auto table =
      OptionTable<CacheOptions>(
          "lockstep cache ls|explain|clear",
          "Looks at what 'map' has kept and removes it. ls lists the entries, the one used last first. "
          "explain KEY or NAME tells what an entry was made from and, for several entries of one name, which "
          "of it changed. clear removes the entries of the given keys or names; those that a process "
          "writes or reads stay.")
          .add("dir", &CacheOptions::dir,
               "The cache's folder. Without it: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else "
               "~/.cache/lockstep.")
          .add("json", &CacheOptions::json, "Print JSON, for programs.")
          .add("older-than", &CacheOptions::older_than,
               "clear: only what was not used for so long, as in 90 (seconds), 30m, 12h, 7d, 2w.")
          .add("all", &CacheOptions::all, "clear: every entry, whatever its name.")
          .rest("KEY|NAME", &CacheOptions::names, "Keys, beginnings of keys, or names.");
  return table;
}

std::chrono::seconds age_from(const std::string& text) {
  static const std::map<char, std::int64_t> kUnits{
      {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}, {'w', 604'800}};
  constexpr std::int64_t kLongest = 1'000'000'000;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  const auto unit = stop + 1 == end ? kUnits.find(*stop) : stop == end ? kUnits.find('s') : kUnits.end();
  if (failure != std::errc() || unit == kUnits.end() || number < 0 || number > kLongest) {
    throw UsageError("--older-than '" + text + "': expected a time as in 90 (seconds), 30m, 12h, 7d or 2w.");
  }
  return std::chrono::seconds(number * unit->second);
}

}  // namespace lockstep::launch
