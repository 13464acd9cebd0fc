#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::net {

/// Owns a file descriptor; -1: none. Closes it when it goes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  /// Gives the descriptor away.
  int release() noexcept { return std::exchange(number_, -1); }
  void reset() noexcept {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

/// An event that one thread raises and another polls for; none, with errno, where the system refuses.
inline FileDescriptor open_event() noexcept { return FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void raise_event(const FileDescriptor& event) noexcept {
  while (eventfd_write(event.get(), 1) < 0 && errno == EINTR) continue;
}

/// Whether it had been raised.
inline bool clear_event(const FileDescriptor& event) noexcept {
  eventfd_t count = 0;
  while (eventfd_read(event.get(), &count) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace lockstep::net
