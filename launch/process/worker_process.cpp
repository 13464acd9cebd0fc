#include "process/worker_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "process/open_files.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Pointers into `words`, as exec takes them.
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

/// Runs in the child. Never returns.
[[noreturn]] void become(char** arguments, char** environment, int report, pid_t launcher,
                         const std::function<void()>& in_child) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above.
  if (getppid() != launcher) _exit(1);
  restore_open_files_limit();
  in_child();
  // What the launcher inherited is not the rank's.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written < 0 ? 1 : 127);
}

SpawnError exec_error(const std::string& program, int error) {
  const std::string head = fmt::format("cannot start '{}': ", program);
  if (error == ENOENT && program.find('/') != std::string::npos && access(program.c_str(), F_OK) == 0) {
    return {
        head + "the file exists, but the interpreter that its first line (or its ELF header) names does not.",
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
  // The lowest free number is used, so they are filled in order. Without close-on-exec, as streams are.
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR);
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) close(opened);
}

SpawnedProcess::SpawnedProcess(std::vector<std::string> command, const Environment& environment,
                               const std::function<void()>& in_child)
    : program_(command.front()), deadline_(net::Clock::now() + kExecTimeout) {
  auto variables = assignments(environment);
  auto arguments = pointers(command);
  auto variable_pointers = pointers(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw formatted<Error>("cannot open a pipe: {}.", std::strerror(errno));
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
  if (pid_ == 0) become(arguments.data(), variable_pointers.data(), child_end.get(), launcher, in_child);
}

bool SpawnedProcess::has_begun(std::chrono::milliseconds limit) {
  if (!report_) return true;
  if (!net::await_ready(report_.get(), POLLIN, net::Clock::now() + limit)) {
    if (net::Clock::now() < deadline_) return false;
    // A process that hangs in the kernel dies when the call returns; it is reaped with the other children
    // then.
    kill(pid_, SIGKILL);
    throw SpawnError(fmt::format("cannot start '{}': its file could not be read within {} s. Look at the "
                                 "file system that it (or its interpreter) is on.",
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

void WorkerOutput::apply() const noexcept {
  const auto redirect = [](const net::FileDescriptor& file, int target) {
    // dup2 of a descriptor onto itself would leave it close-on-exec.
    if (file.get() == target) {
      fcntl(target, F_SETFD, 0);
    } else if (file) {
      dup2(file.get(), target);
    }
  };
  redirect(out, STDOUT_FILENO);
  redirect(err, STDERR_FILENO);
}

}  // namespace lockstep::launch
