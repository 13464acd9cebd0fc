#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_info.hpp"
#include "lockstep/core/atomic_file.hpp"

namespace lockstep {

/// The file that makes a folder a checkpoint. It is written last, and lists the size and the CRC-32C of every
/// other file.
constexpr const char* kManifestFileName = "manifest.json";

/// Sizes and checksums of files, by name.
using FileDigests = std::map<std::string, FileDigest>;

/// Writes a checkpoint: `write` fills the folder that is passed to it, then the manifest is added, and
/// everything appears as `path` at once (see AtomicDirectory). `write` returns the digests that it knows, as
/// returned by AtomicFile::commit(); other files are read for the manifest. An older checkpoint of that name
/// is replaced. `info.sequence` is set to the next number of `path`'s parent folder. *Local*: one rank calls
/// it. Throws what `write` throws, UsageError if `path` is not a checkpoint, and Error if the disk is full or
/// fails; then `path` is unchanged.
void write_checkpoint(const std::filesystem::path& path, CheckpointInfo info,
                      const std::function<FileDigests(const std::filesystem::path&)>& write);

/// Reads every byte of the checkpoint and compares it with the manifest. *Local*. Throws DataError, which
/// names the first file that is missing, too short, too long or changed.
Checkpoint verify_checkpoint(const std::filesystem::path& path);

/// The folders `checkpoint-<number>` in `folder` that have a manifest, newest first; those with an unreadable
/// manifest are last, with sequence 0. Other files are not read. Empty if the folder does not exist. *Local*.
std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& folder);
/// The folders `checkpoint-<number>` in `folder` that have no manifest and hold more than a model's weights:
/// interrupted copies. *Local*.
std::vector<std::filesystem::path> checkpoints_without_manifest(const std::filesystem::path& folder);

/// The newest checkpoint in `folder` that verify_checkpoint and `fits` accept (without `fits`, all). *Local*.
LatestCheckpoint latest_checkpoint(const std::filesystem::path& folder,
                                   const std::function<bool(const CheckpointInfo&)>& fits = {});

/// Which checkpoints are kept: those that any of the rules keeps.
struct RotationOptions {
  /// The newest ones; 0 keeps all. The one to resume from is therefore always kept.
  std::int64_t keep_last = 2;
  /// The best ones by CheckpointInfo::metric, of those that have one; of two equally good ones the newer.
  std::int64_t keep_best = 0;
  /// Whether a higher metric is better.
  bool greater_is_better = false;
  /// Those of steps that are a multiple of this; 0: none.
  std::int64_t keep_every = 0;
  /// At most this many in total: the oldest are removed, but never the newest nor the one named `protect`, so
  /// that a limit of one may keep two. 0: no limit.
  std::int64_t total_limit = 0;
  std::string protect = {};
};

/// Removes the checkpoints of `folder` that no rule keeps. Those in `bad` are not counted, and are removed as
/// well. Folders without a manifest are kept. Call it after a new checkpoint is complete. *Local*. Throws
/// Error.
void rotate_checkpoints(const std::filesystem::path& folder, const RotationOptions& options,
                        const std::vector<BadCheckpoint>& bad = {});

}  // namespace lockstep
