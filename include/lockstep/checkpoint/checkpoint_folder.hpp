#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/checksum.hpp"

namespace lockstep {

/// The manifest's description of a checkpoint.
struct CheckpointInfo {
  /// Optimizer steps done, and the current epoch, counted from 0.
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  /// Number of ranks of the job that wrote it.
  int world_size = 1;
  /// Origin of its run: the path of a checkpoint, or empty if the run started from the beginning.
  std::string started_from = {};
  /// Number of its commit among the checkpoints of the folder, from 1. A run that goes back to an earlier
  /// step still writes the newest checkpoint.
  std::int64_t sequence = 0;
  /// The metric that the program passed, if any; `keep_best` compares it.
  std::optional<double> metric = {};
  /// Versions that wrote it, such as "0.1.0". Empty if unknown.
  std::string lockstep_version = {};
  std::string libtorch_version = {};
};

/// A checkpoint and its folder.
struct Checkpoint {
  std::filesystem::path path;
  CheckpointInfo info;
};

/// The file that makes a folder a checkpoint. It is written last, and lists the size and the CRC-32C of every
/// other file.
constexpr const char* kManifestFileName = "manifest.json";

/// The name of the checkpoint of a step: "checkpoint-120".
std::string checkpoint_name(std::int64_t step);

/// The step in a name that checkpoint_name() returned; empty for any other name.
std::optional<std::int64_t> step_in_name(const std::string& name);

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

/// A folder with a checkpoint's name that cannot be used, and the reason.
struct BadCheckpoint {
  std::filesystem::path path;
  std::string reason;
};

/// The result of latest_checkpoint.
struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;
  /// The skipped ones, which are newer or of unknown age; empty if the newest is complete.
  std::vector<BadCheckpoint> passed_over;
  /// If there is no checkpoint: folders without a manifest that have no more than a model's weights, as
  /// TrainingArguments::save_only_model writes them.
  std::vector<std::filesystem::path> weights_only = {};
};

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
