#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/lease.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "datasets/distributed/work_session.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// A part of the source that becomes one shard of the result.
struct ShardTask {
  std::uint64_t number = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

/// Shards of `shard_rows` rows. If that is 0, of a number that depends only on the source: about 64 shards of
/// at least 1,000 and at most 100,000 rows. Always rounded up to whole batches.
std::vector<ShardTask> shard_grid(std::int64_t rows, std::int64_t batch_rows, std::int64_t shard_rows);

/// Computes a shard into a new file and returns the number of rows written; need not flush it to disk. Throws
/// soon after `stop` becomes true: the shard is no longer needed.
using ShardFunction = std::function<std::uint64_t(const ShardTask& task, const std::filesystem::path& file,
                                                  const std::atomic<bool>& stop)>;

/// Replaces the shard with this index in ShardedWork::tasks: `write` writes the new file and returns its
/// number of rows.
using ReplaceShard = std::function<void(
    std::size_t position, const std::function<std::uint64_t(const std::filesystem::path& file)>& write)>;

/// Work whose result is cached.
struct ShardedWork {
  /// Its name in messages, such as "map 'tokenize'".
  std::string what;
  /// Key, name and fields.
  CacheManifest manifest;
  std::vector<ShardTask> tasks;
  /// Called by each worker in its own thread before its first shard.
  std::function<ShardFunction(const Worker&)> start;
  /// Called by one rank with the files of all shards, in order, before the result is complete: gives them the
  /// same types. If it throws UsageError, because that is impossible, all shards are removed. May be empty.
  std::function<void(const std::vector<std::filesystem::path>& files, const ReplaceShard& replace)> align;
};

struct CachedRunOptions {
  std::filesystem::path cache;
  /// Limit of the whole cache in bytes; 0: none.
  std::uint64_t limit = 0;
  bool load_from_cache = true;
  /// Called with the entry before it is checked, and again when its folder exists. Marks it as in use
  /// (CacheUse), so that it is not removed before the caller has opened it.
  std::function<void(const std::filesystem::path& entry)> mark = {};
  int threads = 1;
  std::vector<std::string> devices = {};
  /// Whether rank 0 shows a progress bar, and the bar's text.
  bool progress = false;
  std::string description = {};
  LeaseOptions lease = {};
  coordination::WaitTimes session = {};
};

/// Marks the entry as read until this process ends, so that it is not removed: a CacheUse for
/// CachedRunOptions::mark.
void hold_entry(const std::filesystem::path& entry);

/// Ensures that the entry of the work's key is complete in this rank's cache, and returns its folder.
/// Existing shards are not computed again. The ranks that see the same cache folder share the work; the
/// result does not depend on which rank computes which shard. *Collective*. Rethrows a worker's exception;
/// the other ranks throw RemoteError; finished shards are kept, and without any the entry is removed. Throws
/// Error if the cache cannot be written.
std::filesystem::path run_cached(const ShardedWork& work, const DistributedContext& ranks,
                                 const CachedRunOptions& options);

}  // namespace lockstep
