#include "process/worker_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

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

/// What the child tells: the error of exec, or nothing, when the pipe was closed by a successful exec.
std::optional<int> reported_error(int descriptor) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(descriptor, &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof error) ? std::optional<int>(error) : std::nullopt;
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

SpawnError start_error(const std::string& program, int error) {
  const std::string head = "cannot start '" + program + "': ";
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

struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(std::string("cannot open a pipe: ") + std::strerror(errno) + ".");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

/// The parent of a process; nothing when it is gone.
std::optional<pid_t> parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  // "pid (name) state parent ...": the name may hold anything, its last ')' ends it.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return std::nullopt;
  pid_t parent = 0;
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), parent);
  return parent;
}

}  // namespace

pid_t start_process(const std::vector<std::string>& command, const Environment& environment,
                    const std::function<void()>& in_child) {
  auto words = command;
  auto variables = assignments(environment);
  const auto arguments = pointers(words);
  const auto variable_pointers = pointers(variables);
  Pipe report;
  const pid_t launcher = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw SpawnError(
        "cannot start '" + command.front() + "': fork: " + std::strerror(errno) +
            ". Look at the limits on processes (ulimit -u, pids.max of the job's cgroup) and memory.",
        126);
  }
  if (child == 0) {
    become(const_cast<char**>(arguments.data()), const_cast<char**>(variable_pointers.data()), report.ends[1],
           launcher, in_child);
  }
  report.close_end(1);
  const auto error = reported_error(report.ends[0]);
  if (!error) return child;
  waitpid(child, nullptr, 0);
  throw start_error(command.front(), *error);
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename();
    pid_t process = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || stop != name.data() + name.size()) continue;
    result.push_back(process);
  }
  return result;
}

std::vector<pid_t> child_processes() {
  std::vector<pid_t> result = all_processes();
  std::erase_if(result, [](pid_t process) { return parent_of(process) != getpid(); });
  return result;
}

}  // namespace lockstep::launch
