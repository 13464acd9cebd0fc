#include "core/runtime/process_handle.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace lockstep {

ProcessStat process_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  // The name stands in brackets, and may hold some itself.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

ProcessHandle::ProcessHandle(pid_t pid)
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  if (descriptor_ < 0) start_ = process_stat(pid).start;
}

ProcessHandle::~ProcessHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      start_(std::exchange(other.start_, 0)) {}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(start_, other.start_);
  return *this;
}

bool ProcessHandle::has_ended() const noexcept {
  if (pid_ == 0) return false;
  if (descriptor_ >= 0) {
    pollfd entry{descriptor_, POLLIN, 0};
    return poll(&entry, 1, 0) > 0;
  }
  try {
    return is_gone();
  } catch (...) {
    return false;  // No memory to find out; the next look may have some.
  }
}

bool ProcessHandle::signal(int number) const noexcept {
  if (descriptor_ >= 0) return syscall(SYS_pidfd_send_signal, descriptor_, number, nullptr, 0) == 0;
  if (pid_ != 0 && start_ != 0 && !has_ended()) return kill(pid_, number) == 0;
  errno = ESRCH;
  return false;
}

bool ProcessHandle::is_gone() const {
  if (kill(pid_, 0) != 0 && errno == ESRCH) return true;
  if (start_ == 0) return false;  // Without /proc nothing tells a zombie, or a successor, from the process.
  const ProcessStat stat = process_stat(pid_);
  if (stat.state == 0) return kill(pid_, 0) != 0 && errno == ESRCH;
  return stat.state == 'Z' || stat.state == 'X' || stat.start != start_;
}

}  // namespace lockstep
