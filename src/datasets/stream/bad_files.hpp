#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/datasets/iterable_dataset.hpp"

namespace lockstep::stream {

/// The files with damage, each once. Any thread.
class BadFiles {
 public:
  /// The rest of the file was abandoned.
  void add(const std::filesystem::path& file, const std::string& reason);
  /// A line was left out. A pass reports the lines of a file in order, from its beginning: one that another
  /// pass has reported, or passed by, is not counted again.
  void add_line(const std::filesystem::path& file, std::int64_t line, const std::string& reason);
  std::vector<BadFile> list() const;

 private:
  struct Known {
    BadFile file;
    std::int64_t last_line = -1;
  };
  Known& record_of(const std::filesystem::path& file);

  mutable std::mutex lock_;
  std::vector<Known> files_;
};

}  // namespace lockstep::stream
