#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_folder.hpp"

namespace lockstep::train {

/// The files of one folder, to be written by a few threads: copying to the system's cache is what takes long,
/// and one core does it at a fraction of the memory's pace. *Local*.
class FileJobs {
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

}  // namespace lockstep::train
