#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <string_view>
#include <utility>

#include "core/file_descriptor.hpp"

/// Functions for signal handlers, which allocate no memory and take no lock, and for installing them.
namespace lockstep::signal_safe {

/// Installs a handler, which runs on the thread's alternate signal stack if it has one. Returns false if the
/// signal already has a handler, or the system refuses.
inline bool handle_unless_taken(int number, void (*handler)(int, siginfo_t*, void*), int flags) noexcept {
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return false;
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | flags;
  sigemptyset(&action.sa_mask);
  return sigaction(number, &action, nullptr) == 0;
}

/// A text of limited length; the rest is truncated. Always null-terminated.
class Text {
 public:
  /// Values must be integers and strings: fmt formats these without memory or locale.
  template <class... Values>
  Text& add(fmt::format_string<Values...> format, Values&&... values) noexcept {
    const std::size_t room = sizeof letters_ - 1 - length_;
    length_ += std::min(
        room, fmt::format_to_n(letters_ + length_, room, format, std::forward<Values>(values)...).size);
    letters_[length_] = '\0';
    return *this;
  }
  const char* c_str() const noexcept { return letters_; }
  std::string_view view() const noexcept { return {letters_, length_}; }

 private:
  char letters_[512] = {};
  std::size_t length_ = 0;
};

/// Writes all of the text, or until an error.
inline void put(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// The name of a thread of this process, as `ps` shows it.
inline Text thread_name(pid_t thread) noexcept {
  Text path;
  path.add("/proc/self/task/{}/comm", thread);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char name[32];
  const ssize_t count = read(file.get(), name, sizeof name);
  Text result;
  // The last character is the line end.
  if (count > 1) result.add("{}", std::string_view(name, static_cast<std::size_t>(count) - 1));
  return result;
}

inline void sleep_milliseconds(int count) noexcept {
  timespec left{count / 1000, count % 1000 * 1'000'000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

}  // namespace lockstep::signal_safe
