#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Writes one checkpoint at a time in a separate thread. The next call rethrows what a write threw. *Local*;
/// used by one thread.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the current write. Prints its exception, if no call has rethrown it, to standard error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the previous write and starts this one. If the previous write threw, rethrows that and does
  /// not start this one.
  void start(std::function<void()> write);

  /// Waits for the current write, if any. Rethrows what it threw.
  void wait();

 private:
  std::thread thread_;
  std::exception_ptr failure_;
};

/// Writes the files of one folder with a few threads: copying to the page cache dominates, and one core
/// reaches only a fraction of the memory bandwidth. *Local*.
class ParallelFileWriter {
 public:
  /// `write` creates the file at the path that it is given; may be called in any thread.
  void add(std::string name, std::function<FileDigest(const std::filesystem::path&)> write) {
    jobs_.emplace_back(std::move(name), std::move(write));
  }

  /// Writes all files, started in the order in which they were added. Rethrows the first exception, after all
  /// threads have ended.
  FileDigests run(const std::filesystem::path& folder, int threads) const;

 private:
  std::vector<std::pair<std::string, std::function<FileDigest(const std::filesystem::path&)>>> jobs_;
};

/// Whether this rank writes the copy of its node: true on rank 0, and on the first rank of each other node
/// that does not see rank 0's files in `folder` (checked with a probe file). Creates the folder if needed.
/// *Collective*.
bool writes_for_its_node(const Accelerator& accelerator, const std::filesystem::path& folder);

/// Runs `action` on the ranks with `takes_part`. If it throws on one of them, that rank rethrows it and the
/// others throw RemoteError with the rank. *Collective*.
void run_on_writers(const Accelerator& accelerator, bool takes_part, const std::function<void()>& action);

}  // namespace lockstep::train
