#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Of a model of which a checkpoint has only what is trained: the frozen parameters that it lacks.
struct FrozenWeights {
  /// Number of the model among the checkpoint's.
  std::int64_t model = 0;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  /// CRC-32C of the list of the parameters' names, dtypes, shapes and, for each, the CRC-32C of its bytes.
  std::uint32_t crc32c = 0;
  /// Where they came from, for people; empty if that is not known.
  std::string base = {};
};

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
  /// See SaveStateOptions::trained_only.
  std::vector<FrozenWeights> frozen = {};
};

/// A checkpoint and its folder.
struct Checkpoint {
  std::filesystem::path path;
  CheckpointInfo info;
};

/// The name of the checkpoint of a step: "checkpoint-120".
std::string checkpoint_name(std::int64_t step);

/// The step in a name that checkpoint_name() returned; empty for any other name.
std::optional<std::int64_t> step_in_name(const std::string& name);

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

}  // namespace lockstep
