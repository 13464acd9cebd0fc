#include "process/worker_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace lockstep::launch {
namespace {

/// The words in the form that exec takes; they live in `words`.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment) result.push_back(name + "=" + value);
  return result;
}

/// The child's side. Never returns.
[[noreturn]] void become(char** arguments, char** environment, int report, pid_t launcher,
                         const std::function<void()>& in_child) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above.
  if (getppid() != launcher) _exit(1);
  in_child();
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written < 0 ? 1 : 127);
}

SpawnError exec_error(const std::string& program, int error) {
  const std::string head = fmt::format("cannot start '{}': ", program);
  if (error == ENOENT && program.find('/') != std::string::npos && access(program.c_str(), F_OK) == 0) {
    return {
        head + "the file is there, but the interpreter that its first line (or its ELF header) names is not.",
        127};
  }
  if (error == ENOENT) {
    return {head + "no such program. Expected a path (./name for one in this folder) or a command on PATH.",
            127};
  }
  if (error == EACCES) return {head + "it is not executable (chmod +x makes it so) or it is a folder.", 126};
  return {head + std::strerror(error) + ".", 126};
}

}  // namespace

void replace_process(std::vector<std::string> command, const Environment& environment) {
  auto variables = assignments(environment);
  execvpe(command.front().c_str(), pointers(command).data(), pointers(variables).data());
  throw exec_error(command.front(), errno);
}

void open_standard_descriptors() noexcept {
  // The lowest free number is taken, so they are filled in order; without close-on-exec, as streams are.
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR);
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) close(opened);
}

SpawnedProcess::SpawnedProcess(const std::vector<std::string>& command, const Environment& environment,
                               const std::function<void()>& in_child)
    : program_(command.front()), deadline_(Clock::now() + kExecTimeout) {
  auto words = command;
  auto variables = assignments(environment);
  const auto arguments = pointers(words);
  const auto variable_pointers = pointers(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot open a pipe: {}.", std::strerror(errno)));
  report_ = net::FileDescriptor(ends[0]);
  const net::FileDescriptor child_end(ends[1]);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    throw SpawnError(fmt::format("cannot start '{}': fork: {}. Look at the limits on processes (ulimit -u, "
                                 "pids.max of the job's cgroup) and memory.",
                                 program_, std::strerror(errno)),
                     126);
  }
  if (pid_ == 0) {
    become(const_cast<char**>(arguments.data()), const_cast<char**>(variable_pointers.data()),
           child_end.get(), launcher, in_child);
  }
}

bool SpawnedProcess::has_begun(std::chrono::milliseconds limit) {
  if (!report_) return true;
  pollfd entry{report_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(limit.count())) <= 0) {
    if (Clock::now() < deadline_) return false;
    // One that hangs in the kernel dies when it comes back; whoever reaps children takes note of it then.
    kill(pid_, SIGKILL);
    throw SpawnError(
        fmt::format("cannot start '{}': its file could not be read within {} s. Look at the file system that "
                    "it (or its interpreter) is on.",
                    program_, kExecTimeout.count()),
        126);
  }
  int error = 0;
  // A successful exec has closed the pipe.
  const bool failed = read(report_.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error);
  report_.reset();
  if (!failed) return true;
  waitpid(pid_, nullptr, 0);
  throw exec_error(program_, error);
}

}  // namespace lockstep::launch
