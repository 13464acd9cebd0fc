#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Opens a file for appending, to be handed to a rank or to be written to. Throws lockstep::Error that names
/// it.
net::FileDescriptor open_log(const std::string& path);

/// A log file that the launcher writes. At its largest size it becomes `<path>.1`, in place of the one
/// before, and a new one is begun. For one thread.
class LogFile {
 public:
  /// `most_bytes` 0: it grows without end. Throws lockstep::Error that names the file.
  LogFile(std::string path, std::int64_t most_bytes);

  /// A full disk is no reason to end a job: false for the first text that could not be written, and then the
  /// file ends there.
  bool write(std::string_view text);

  const std::string& path() const noexcept { return path_; }

 private:
  void begin_anew();

  std::string path_;
  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  net::FileDescriptor file_;
};

}  // namespace lockstep::launch
