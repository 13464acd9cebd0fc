#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/lease.hpp"
#include "lockstep/datasets/cache_entry.hpp"

namespace lockstep {

/// Where results are kept unless the program says otherwise: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep,
/// else ~/.cache/lockstep. Throws UsageError when none of the three variables (HOME the third) is set.
std::filesystem::path default_cache_folder(const Environment& environment);

/// "20000000000", "20G", "512M": a number of bytes; K, M, G and T stand for powers of 1024. Nothing else.
std::optional<std::uint64_t> parse_bytes(const std::string& text);
/// For a reader: "1.2 GiB".
std::string bytes_text(std::uint64_t bytes);

/// The limit in LOCKSTEP_CACHE_LIMIT, or 0: none. Throws UsageError for anything but parse_bytes() takes.
std::uint64_t default_cache_limit(const Environment& environment);

/// What lies in the folder of a key.
struct CacheEntry {
  std::filesystem::path folder;
  CacheManifest manifest;
  /// Of all files, finished or not.
  std::uint64_t bytes = 0;
  /// Of the shards that are there.
  std::uint64_t rows = 0;
  /// When it was last written or opened, by the file system's clock: the time of its manifest.
  std::filesystem::file_time_type last_use;
  /// Who writes it now.
  std::optional<LeaseHolder> writer;
  /// Whether somebody reads it now.
  bool read = false;
};

/// Every entry of a cache folder, the one used last first. Folders without a readable manifest, other files,
/// and what goes away meanwhile are passed over. Empty for a folder that is not there. *Local*.
std::vector<CacheEntry> list_cache(const std::filesystem::path& cache);

/// Why an entry must not be removed now ("host a, pid 12 writes it"), or an empty text.
std::string hold_on(const CacheEntry& entry);

/// Removes an entry; nobody sees it half removed. Throws UsageError when somebody writes or reads it, also
/// when he has come after the look: a reader marks the entry (CacheUse) before he looks whether it is there,
/// and either is seen or sees that it is gone. *Local*.
void remove_entry(const CacheEntry& entry);

/// Removes entries, those not used for longest first, until `limit` bytes are not exceeded by what stays and
/// `needed` more. Never those that somebody holds, nor `kept` (a key). A limit of 0 is none. Returns the
/// keys that went; what cannot be removed stays. *Local*.
std::vector<std::string> evict(const std::filesystem::path& cache, std::uint64_t limit, std::uint64_t needed,
                               const std::string& kept);

/// Why entries of one name are not the same: for the keys in the order of their times, the fields of each
/// that are others than in the one before. As text for a reader.
std::string explain_entries(std::vector<CacheManifest> manifests);

/// The fields in which two differ, a line each: "parameters.max_length: 128 -> 256".
std::vector<std::string> changed_fields(const CacheManifest& before, const CacheManifest& after);

/// Says that this process reads an entry, so that nobody removes it, until the last copy goes. It is a file
/// `use.<host>.<pid>` in the entry's folder; of a process that was killed it counts for nothing on its own
/// host, and for a day on others. Also sets the time of last use. A folder that may not be written gets
/// neither, and that is no error: nobody can remove it either. *Local*; any thread.
class CacheUse {
 public:
  explicit CacheUse(const std::filesystem::path& entry);

 private:
  struct Mark;
  std::shared_ptr<Mark> mark_;
};

}  // namespace lockstep
