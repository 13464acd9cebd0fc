#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/distributed/cached_run.hpp"

namespace lockstep {

/// A worker's folder for unfinished files, in the folder of the entry. Removed with its content when
/// destroyed.
class WorkFolder {
 public:
  WorkFolder(const std::filesystem::path& entry, const Worker& worker);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  std::filesystem::path file_of(const ShardTask& task) const { return path_ / std::to_string(task.number); }

 private:
  std::filesystem::path path_;
};

/// Moves finished shards into the folder of an entry.
class CacheEntryWriter {
 public:
  /// `limit`: see CachedRunOptions; `leads`: whether this rank may remove other entries because of it.
  CacheEntryWriter(const ShardedWork& work, std::filesystem::path entry, std::uint64_t limit, bool leads);

  /// Whether the result exists: its manifest is complete, and every file has its size.
  bool is_complete() const { return complete_manifest().has_value(); }
  /// Whether it exists and its shards have the checksums in their names. If the size, times or inode of
  /// any shard differ from those recorded at the last check (a copied or restored cache, an edited shard),
  /// reads all shards and records the result. With `remove`, which is for the holder of the lease, a shard
  /// with a wrong checksum is removed, with a message on standard error.
  bool is_sound(bool remove);
  /// Prepares the folder of an unfinished entry: writes the manifest, keeps complete shards, and removes
  /// everything else. `anew`: removes all shards. For the holder of the lease.
  void begin(bool anew) const;
  /// After a failure, removes all but marks and the lease from a folder without a shard. For the holder of
  /// the lease.
  void remove_if_empty() const;
  /// Indices in ShardedWork::tasks of the shards to compute.
  std::vector<std::size_t> missing() const;
  /// Rows of the source that the folder's shards cover.
  std::int64_t rows_done() const;

  /// Flushes a computed shard of `rows` rows to disk and renames it. Any thread.
  void commit(const ShardTask& task, const std::filesystem::path& file, std::uint64_t rows);
  /// See ShardedWork::align. For the holder of the lease.
  void align(const Worker& worker);
  /// Whether the first shard was committed and used to estimate the space for the rest.
  bool has_checked_room() const noexcept { return checked_; }
  /// Writes the manifest of the complete result.
  void finish(double seconds) const;

 private:
  std::optional<CacheManifest> complete_manifest() const;
  void note_checked(const CacheManifest& manifest) const;
  /// Throws Error if the rest will not fit on the disk, estimated from the first shard.
  void check_room(const ShardTask& task, std::uint64_t bytes);

  const ShardedWork& work_;
  std::filesystem::path entry_;
  std::uint64_t limit_;
  bool leads_;
  std::atomic<bool> checked_{false};
  /// The stamps of the shards when one of them was found to be damaged: a waiting process reads them only
  /// once.
  std::string damaged_;
};

}  // namespace lockstep
