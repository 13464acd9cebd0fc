#include "logs/log_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {

net::FileDescriptor open_log(const std::string& path) {
  net::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) throw Error("cannot write the log file '" + path + "': " + std::strerror(errno) + ".");
  return file;
}

LogFile::LogFile(std::string path, std::int64_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes), file_(open_log(path_)) {}

void LogFile::begin_anew() {
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return;
  // Where no new one can be made, the old one goes on.
  net::FileDescriptor next(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (next) file_ = std::move(next);
  bytes_ = 0;
}

bool LogFile::write(std::string_view text) {
  if (most_bytes_ > 0 && bytes_ > 0 && bytes_ + static_cast<std::int64_t>(text.size()) > most_bytes_) {
    begin_anew();
  }
  while (!text.empty() && file_) {
    const ssize_t count = ::write(file_.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      file_.reset();
      return false;
    }
    bytes_ += count;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace lockstep::launch
