#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Writes one checkpoint at a time in a thread of its own. What a write throws comes out of the next call.
/// *Local*; used by one thread.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the write under way. What it threw, and nobody asked for, goes to standard error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the write before, and begins this one. Throws what the one before threw; then this one is not
  /// begun.
  void start(std::function<void()> write);

  /// Waits for the write under way, if there is one. Throws what it threw.
  void wait();

 private:
  std::thread thread_;
  std::exception_ptr failure_;
};

/// The files of one folder, to be written by a few threads: copying to the system's cache is what takes long,
/// and one core does it at a fraction of the memory's pace. *Local*.
class ParallelFileWriter {
 public:
  /// `write` makes the file of the path that it is given; it may be called in any thread.
  void add(std::string name, std::function<FileDigest(const std::filesystem::path&)> write) {
    jobs_.emplace_back(std::move(name), std::move(write));
  }

  /// Writes all, begun in the order in which they were added. Throws what the first of them threw; the others
  /// have ended by then.
  FileDigests run(const std::filesystem::path& folder, int threads) const;

 private:
  std::vector<std::pair<std::string, std::function<FileDigest(const std::filesystem::path&)>>> jobs_;
};

/// Whether this rank writes what is kept on each node: rank 0, and the first rank of each other node that
/// does not see rank 0's files at `folder`, which a probe tells. Makes the folder where needed. *Collective*.
bool writes_for_its_node(const Accelerator& accelerator, const std::filesystem::path& folder);

/// Runs `action` on the ranks that `takes_part`. An exception of any of them reaches all, with the rank.
/// *Collective*.
void run_on_writers(const Accelerator& accelerator, bool takes_part, const std::function<void()>& action);

}  // namespace lockstep::train
