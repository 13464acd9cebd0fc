#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/trackers/line_file.hpp"

namespace lockstep::mlflow {

/// A line of the queue, and its place in the file.
struct QueuedLine {
  std::uint64_t begin = 0;
  /// After the line break.
  std::uint64_t end = 0;
  nlohmann::json content;
};

/// The values that a run has logged, in the order of their logging, as a file of JSON lines. They are written
/// before add() returns, so that they survive the process. The queue takes no memory however long it gets.
/// Any thread. Throws Error if the file cannot be written or read.
class ValueQueue {
 public:
  /// Continues the file; an incomplete line at its end is dropped.
  explicit ValueQueue(std::filesystem::path path);

  void add(const nlohmann::json& line);
  /// Bytes of all lines.
  std::uint64_t size() const;
  /// The lines from `begin` on, at least one if there is one, until they have `most_bytes`. A line that is
  /// not JSON is null.
  std::vector<QueuedLine> read(std::uint64_t begin, std::size_t most_bytes) const;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  mutable std::mutex mutex_;
  LineFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::mlflow
