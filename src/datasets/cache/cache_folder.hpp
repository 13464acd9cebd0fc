#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/lease.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The default folder of results: $LOCKSTEP_CACHE, otherwise $XDG_CACHE_HOME/lockstep, otherwise
/// ~/.cache/lockstep. Throws UsageError if none of the three variables (the third is HOME) is set.
std::filesystem::path default_cache_folder(const Environment& environment);

/// The limit in LOCKSTEP_CACHE_LIMIT; 0 if there is none. Throws UsageError for what is not a
/// number of bytes, as in 20000000000 or 20G.
std::uint64_t default_cache_limit(const Environment& environment);

/// The contents of a key's folder.
struct CacheEntry {
  std::filesystem::path folder;
  CacheManifest manifest;
  /// Size of all files, finished or not.
  std::uint64_t bytes = 0;
  /// Rows of the existing shards.
  std::uint64_t rows = 0;
  /// When it was last written or opened, by the file system's clock: the mtime of its manifest.
  std::filesystem::file_time_type last_use;
  /// The process that is writing it.
  std::optional<LeaseHolder> writer;
  /// Whether a process is reading it.
  bool read = false;
};

/// All entries of a cache folder, the most recently used first. Skips folders without a readable manifest,
/// other files, and what disappears meanwhile. Empty if the folder does not exist. *Local*.
std::vector<CacheEntry> list_cache(const std::filesystem::path& cache);

/// Why an entry must not be removed now ("host a, pid 12 writes it"); empty if it may be.
std::string hold_on(const CacheEntry& entry);

/// Removes an entry atomically: no process sees a partly removed one. Throws UsageError if a process writes
/// or reads it, even if that process arrived after the check: a reader marks the entry (CacheUse) before it
/// looks for the files, so either its mark is seen or it finds no entry. *Local*.
void remove_entry(const CacheEntry& entry);

/// Removes the least recently used entries until the rest and `needed` more bytes fit into `limit`. Never
/// removes entries in use, nor `kept` (a key). A limit of 0 means none. Returns the removed keys; entries
/// that cannot be removed stay. *Local*.
std::vector<std::string> evict(const std::filesystem::path& cache, std::uint64_t limit, std::uint64_t needed,
                               const std::string& kept);

/// Explains why entries of the same name differ: for each key, in the order of their times, the fields that
/// differ from the previous one. Human-readable text.
std::string explain_entries(std::vector<CacheManifest> manifests);

/// The fields in which two manifests differ, one line each: "parameters.max_length: 128 -> 256".
std::vector<std::string> changed_fields(const CacheManifest& before, const CacheManifest& after);

/// Marks an entry as being read by this process, so that it is not removed, until the last copy is destroyed.
/// The mark is a file `use.<host>.<pid>.<n>` in the entry's folder. The mark of a killed process is ignored
/// on its own host, and on other hosts after a day. Also sets the time of last use. In a folder without write
/// permission neither is done, which is not an error. *Local*; any thread.
class CacheUse {
 public:
  explicit CacheUse(const std::filesystem::path& entry);

 private:
  struct Mark;
  std::shared_ptr<Mark> mark_;
};

}  // namespace lockstep
