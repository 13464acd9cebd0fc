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

/// What the manifest of a checkpoint says about it.
struct CheckpointInfo {
  /// Optimizer steps that were done, and the epoch they led to.
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  /// The number of ranks that it was written by.
  int world_size = 1;
  /// Where the run began that it belongs to: a checkpoint's path, or empty for a run from scratch.
  std::string started_from = {};
  /// Numbers the checkpoints of a folder in the order in which they were committed, from 1. A run that goes
  /// back to an earlier step still writes the newest checkpoint.
  std::int64_t sequence = 0;
  /// How good the model was, where the program said so: what `keep_best` compares.
  std::optional<double> metric = {};
  /// Who wrote it: "0.1.0". Empty where that is not known.
  std::string lockstep_version = {};
  std::string libtorch_version = {};
};

/// A checkpoint and the folder that it is in.
struct Checkpoint {
  std::filesystem::path path;
  CheckpointInfo info;
};

/// The file that makes a folder a checkpoint: it is written last, and lists the size and the CRC-32C of every
/// other file.
constexpr const char* kManifestFileName = "manifest.json";

/// The name of the checkpoint of a step: "checkpoint-120".
std::string checkpoint_name(std::int64_t step);

/// Sizes and checksums of files, by their names.
using FileDigests = std::map<std::string, FileDigest>;

/// Writes a checkpoint: `write` fills the folder that it is given, then the manifest is added, and all of it
/// appears as `path` at once (see AtomicDirectory). `write` returns what it knows of its files, as
/// AtomicFile::commit() tells it; files that it leaves out are read for the manifest. An older checkpoint of
/// that name is replaced. `info.sequence` is set to the next number of the folder that `path` is in. *Local*:
/// one rank calls it. Throws what `write` throws, UsageError when `path` is something else than a checkpoint,
/// and Error when the disk is full or fails; then `path` is as it was before.
void write_checkpoint(const std::filesystem::path& path, CheckpointInfo info,
                      const std::function<FileDigests(const std::filesystem::path&)>& write);

/// Reads every byte of the checkpoint and compares it with the manifest. *Local*. Throws DataError, naming
/// the first file that is missing, too short, too long or changed.
Checkpoint verify_checkpoint(const std::filesystem::path& path);

/// The folders `checkpoint-<number>` in `folder` that have a manifest, newest first; those whose manifest
/// cannot be read come last, with the sequence 0. Other files are not read. An empty list where there is no
/// such folder. *Local*.
std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& folder);

/// A folder that has a checkpoint's name and is none that can be used, and why.
struct BadCheckpoint {
  std::filesystem::path path;
  std::string reason;
};

/// What latest_checkpoint found.
struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;
  /// Those that are newer, or whose age cannot be told; empty when the newest is whole.
  std::vector<BadCheckpoint> passed_over;
};

/// The newest checkpoint in `folder` that verify_checkpoint accepts and `fits` wants (all, without one).
/// *Local*.
LatestCheckpoint latest_checkpoint(const std::filesystem::path& folder,
                                   const std::function<bool(const CheckpointInfo&)>& fits = {});

/// Which checkpoints stay: whatever one of the rules keeps.
struct RotationOptions {
  /// The newest ones; 0 keeps all. So the one to go on from always stays.
  std::int64_t keep_last = 2;
  /// The best ones by CheckpointInfo::metric, of those that have one; the newer of two that are equally good.
  std::int64_t keep_best = 0;
  /// Whether a higher metric is the better one.
  bool greater_is_better = false;
  /// Those of steps that are a multiple of this; 0: none for that reason.
  std::int64_t keep_every = 0;
  /// No more than so many all told: the oldest go, but never the newest nor the one called `protect`, which
  /// may therefore be two with a limit of one. 0: the rules above alone.
  std::int64_t total_limit = 0;
  std::string protect = {};
};

/// Removes the checkpoints of `folder` that no rule keeps. Those in `bad` do not count and are removed as
/// well. Folders without a manifest stay. To be called after a new one is in place. *Local*. Throws Error.
void rotate_checkpoints(const std::filesystem::path& folder, const RotationOptions& options,
                        const std::vector<BadCheckpoint>& bad = {});

}  // namespace lockstep
