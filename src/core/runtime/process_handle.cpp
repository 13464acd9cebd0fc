#include "core/runtime/process_handle.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>

#include "core/file_system.hpp"

namespace lockstep {

ProcessStat process_stat(pid_t pid) {
  const std::string line = file_system::first_line(fmt::format("/proc/{}/stat", pid));
  // The name is in parentheses, and may contain some itself.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

bool has_ended(pid_t pid, std::uint64_t start) {
  const auto is_absent = [&] { return kill(pid, 0) != 0 && errno == ESRCH; };
  if (is_absent()) return true;
  if (start == 0) return false;
  const ProcessStat stat = process_stat(pid);
  if (stat.state == 0) return is_absent();
  return stat.state == 'Z' || stat.state == 'X' || stat.start != start;
}

ProcessHandle::ProcessHandle(pid_t pid)
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  if (!descriptor_) start_ = process_stat(pid).start;
}

bool ProcessHandle::has_ended() const noexcept {
  if (pid_ == 0) return false;
  if (descriptor_) {
    pollfd entry{descriptor_.get(), POLLIN, 0};
    return poll(&entry, 1, 0) > 0;
  }
  try {
    return lockstep::has_ended(pid_, start_);
  } catch (...) {
    return false;  // Out of memory; the next call may succeed.
  }
}

bool ProcessHandle::signal(int number) const noexcept {
  if (descriptor_) return syscall(SYS_pidfd_send_signal, descriptor_.get(), number, nullptr, 0) == 0;
  if (pid_ != 0 && start_ != 0 && !has_ended()) return kill(pid_, number) == 0;
  errno = ESRCH;
  return false;
}

}  // namespace lockstep
