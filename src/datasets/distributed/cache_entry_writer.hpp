#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cached_run.hpp"

namespace lockstep {

/// Where a worker computes, in the folder of the entry: goes with everything in it.
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

/// Puts finished shards into the folder of an entry.
class CacheEntryWriter {
 public:
  /// `limit`: see CachedRunOptions; `leads`: whether this rank may remove other entries for it.
  CacheEntryWriter(const ShardedWork& work, std::filesystem::path entry, std::uint64_t limit, bool leads);

  /// The result is there: its manifest says so, and every file has its size.
  bool is_complete() const;
  /// The shards of a complete entry have the checksums of their names. Reads those that have changed their
  /// size, times or inode since they were last known to (a copied or restored cache, a shard that somebody
  /// has edited), which is remembered beside them. A shard that has not is removed, with a word on standard
  /// error.
  bool has_its_checksums() const;
  /// Makes the folder what an unfinished entry is: the manifest, the shards that are whole, and nothing else.
  /// `anew`: no shards. For the holder of the lease.
  void begin(bool anew) const;
  /// The parts that are to be computed, by their places in ShardedWork::tasks.
  std::vector<std::size_t> missing() const;
  /// Rows of the source that are done, by what lies in the folder.
  std::int64_t rows_done() const;

  /// Brings a computed part of `rows` rows to the disk and gives it its name. Any thread.
  void commit(const ShardTask& task, const std::filesystem::path& file, std::uint64_t rows);
  /// See ShardedWork::align. For the holder of the lease.
  void align(const Worker& worker);
  /// Whether a part has been committed, and the rest judged by it.
  bool has_checked_room() const noexcept { return checked_; }
  /// Writes the manifest of the whole result.
  void finish(double seconds) const;

 private:
  void note_checked(const CacheManifest& manifest) const;
  /// Throws Error when what is still to come will not fit on the disk, judged by the first shard.
  void check_room(const ShardTask& task, std::uint64_t bytes);

  const ShardedWork& work_;
  std::filesystem::path entry_;
  std::uint64_t limit_;
  bool leads_;
  std::atomic<bool> checked_{false};
};

}  // namespace lockstep
