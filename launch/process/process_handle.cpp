#include "process/process_handle.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "process/process_facts.hpp"

namespace lockstep::launch {

ProcessHandle::ProcessHandle(pid_t process)
    : process_(process), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))) {
  // Whatever the reason: kernels before 5.3 do not know the call, and sandboxes forbid it.
  if (descriptor_) return;
  if (const auto stat = process_stat(process)) start_ = stat->start;
}

bool ProcessHandle::signal(int number) const {
  if (descriptor_) return syscall(SYS_pidfd_send_signal, descriptor_.get(), number, nullptr, 0) == 0;
  const auto stat = process_stat(process_);
  if (start_ == 0 || !stat || stat->start != start_) {
    errno = ESRCH;
    return false;
  }
  return kill(process_, number) == 0;
}

}  // namespace lockstep::launch
