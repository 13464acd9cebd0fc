#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/lease.hpp"
#include "lockstep/datasets/cache_entry.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "store_session.hpp"

namespace lockstep {

/// A part of the source that becomes one shard of the result.
struct ShardTask {
  std::uint64_t number = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

/// Parts of `shard_rows` rows, or of a number that follows from the source alone when that is 0: so that
/// there are some 64 parts, none below 1,000 rows and none above 100,000; rounded up to whole batches.
std::vector<ShardTask> shard_grid(std::int64_t rows, std::int64_t batch_rows, std::int64_t shard_rows);

/// Computes a part of the source into a new file, and returns how many rows it has written. It need not be on
/// the disk. Throws soon once `stop` is true: nobody wants the part any more.
using ShardFunction = std::function<std::uint64_t(const ShardTask& task, const std::filesystem::path& file,
                                                  const std::atomic<bool>& stop)>;

/// Puts another file in the place of the shard at a place in ShardedWork::tasks: `write` fills it and returns
/// its rows.
using ReplaceShard = std::function<void(
    std::size_t place, const std::function<std::uint64_t(const std::filesystem::path& file)>& write)>;

/// Work whose result is kept.
struct ShardedWork {
  /// How messages call it: "map 'tokenize'".
  std::string what;
  /// Key, name and fields.
  CacheManifest manifest;
  std::vector<ShardTask> tasks;
  /// Called by each worker on its own thread before its first part.
  std::function<ShardFunction(const Worker&)> start;
  /// Called by one rank with the files of all shards, in order, before they count as a result: makes them
  /// alike. Where it throws UsageError, for they cannot be, all shards go. May be empty.
  std::function<void(const std::vector<std::filesystem::path>& files, const ReplaceShard& replace)> align;
};

struct CachedRunOptions {
  std::filesystem::path cache;
  /// Of the whole cache, in bytes; 0: none.
  std::uint64_t limit = 0;
  bool load_from_cache = true;
  /// Called with the entry before it is looked at, and again once it is there: to mark it as in use
  /// (CacheUse), so that nobody removes it before the caller has opened it.
  std::function<void(const std::filesystem::path& entry)> mark = {};
  int threads = 1;
  std::vector<std::string> devices = {};
  /// Whether rank 0 draws a progress bar, and its text.
  bool progress = false;
  std::string description = {};
  LeaseOptions lease = {};
  StoreSessionOptions session = {};
};

/// Says until this process ends that it reads the entry, so that nobody removes it: a CacheUse for
/// CachedRunOptions::mark.
void hold_entry(const std::filesystem::path& entry);

/// Makes sure that the entry of the work's key is complete in this rank's cache, and returns its folder. What
/// is there already, whole or in part, is not computed again. The ranks that see one cache folder share the
/// parts; which rank computes which part has no influence on the result. *Collective*. Throws what a worker
/// has thrown, RemoteError on the other ranks, Error for a cache that cannot be written.
std::filesystem::path run_cached(const ShardedWork& work, const DistributedContext& ranks,
                                 const CachedRunOptions& options);

}  // namespace lockstep
