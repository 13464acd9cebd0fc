#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace lockstep::mlflow {

inline constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::min();

/// What the file mlflow.json in a tracker's folder remembers of its run. *Local*.
struct RunRecord {
  std::string tracking_uri = {};
  std::string experiment_id = {};
  /// Empty: not created yet.
  std::string run_id = {};
  /// The value of the run's tag `lockstep.key`, written before the run is created: a run whose creation had
  /// no answer is found by it. Empty: no creation was tried.
  std::string run_key = {};
  /// Bytes of the queue that the server has.
  std::uint64_t sent = 0;
  /// The greatest step of a value that was sent.
  std::int64_t last_step = kNoStep;
  /// Its status is one of an ended run.
  bool has_ended = false;

  /// An empty record if there is no file. Throws DataError if it is not such a file.
  static RunRecord read(const std::filesystem::path& path);
  /// Replaces the file. Throws Error.
  void write(const std::filesystem::path& path) const;
};

}  // namespace lockstep::mlflow
