#include "lockstep/datasets/cache_folder.hpp"

#include <algorithm>
#include <charconv>

#include "datasets/cache_use.hpp"
#include "lockstep/core/atomic_directory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Adds up the files of a folder and of those below it.
std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code failure;
  for (const auto& each : fs::recursive_directory_iterator(folder, failure)) {
    std::error_code gone;
    const auto bytes = each.is_regular_file(gone) ? each.file_size(gone) : 0;
    if (!gone) sum += bytes;
  }
  return sum;
}

std::optional<CacheEntry> read_entry(const fs::path& folder) {
  CacheEntry entry;
  entry.folder = folder;
  try {
    auto manifest = read_manifest(folder);
    if (!manifest) return std::nullopt;
    entry.manifest = std::move(*manifest);
  } catch (const DataError&) {
    return std::nullopt;
  }
  for (const auto& [number, shard] : finished_shards(folder)) entry.rows += shard.rows;
  entry.bytes = bytes_below(folder);
  entry.writer = live_lease(folder);
  entry.read = is_read(folder);
  std::error_code gone;
  entry.last_use = last_use_of(folder, gone);
  return gone ? std::nullopt : std::optional(std::move(entry));
}

}  // namespace

fs::path default_cache_folder(const Environment& environment) {
  const auto variable = [&](const char* name) { return find_variable(environment, name).value_or(""); };
  if (const auto named = variable("LOCKSTEP_CACHE"); !named.empty()) return named;
  if (const auto shared = variable("XDG_CACHE_HOME"); !shared.empty()) return fs::path(shared) / "lockstep";
  if (const auto home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "lockstep";
  throw UsageError("nobody says where results are to be kept: set LOCKSTEP_CACHE to a folder (or HOME).");
}

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc()) return std::nullopt;
  if (stop == end) return number;
  const auto unit = std::string_view("KMGT").find(*stop);
  if (unit == std::string_view::npos || stop + 1 != end) return std::nullopt;
  const auto shift = 10 * (unit + 1);
  if (number > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

std::uint64_t default_cache_limit(const Environment& environment) {
  const auto text = find_variable(environment, "LOCKSTEP_CACHE_LIMIT");
  if (!text || text->empty()) return 0;
  if (const auto bytes = parse_bytes(*text)) return *bytes;
  throw UsageError("environment variable LOCKSTEP_CACHE_LIMIT='" + *text +
                   "': expected a number of bytes, as in 20000000000 or 20G.");
}

std::vector<CacheEntry> list_cache(const fs::path& cache) {
  std::vector<CacheEntry> entries;
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(cache, failure)) {
    if (auto entry = read_entry(each.path())) entries.push_back(std::move(*entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& left, const auto& right) { return left.last_use > right.last_use; });
  return entries;
}

std::string hold_on(const CacheEntry& entry) {
  if (entry.writer) return process_text(entry.writer->process) + " writes it";
  return entry.read ? "a process reads it" : "";
}

void remove_entry(const CacheEntry& entry) {
  const std::string hold = hold_on(entry);
  if (!hold.empty()) {
    throw UsageError("the cache entry " + entry.manifest.key + " (" + entry.manifest.name +
                     ") is in use: " + hold + ". Try again when it has ended.");
  }
  remove_folder(entry.folder);
}

std::vector<std::string> evict(const fs::path& cache, std::uint64_t limit, std::uint64_t needed,
                               const std::string& kept) {
  std::vector<std::string> gone;
  if (limit == 0) return gone;
  auto entries = list_cache(cache);
  std::uint64_t sum = needed;
  for (const auto& entry : entries) sum += entry.bytes;
  for (auto entry = entries.rbegin(); entry != entries.rend() && sum > limit; ++entry) {
    if (entry->manifest.key == kept || !hold_on(*entry).empty()) continue;
    try {
      remove_entry(*entry);
    } catch (const Error&) {
      continue;
    }
    sum -= entry->bytes;
    gone.push_back(entry->manifest.key);
  }
  return gone;
}

}  // namespace lockstep
