#include "agent/stack_tool.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "process/process_facts.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

/// The path of a program in the folders of `search_path`; empty where it is in none.
std::string found(const std::string& name, const std::string& search_path) {
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

bool runs_python(pid_t process) {
  const std::string program = program_of(process);
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

/// In the child: the launcher's blocked signals and closed pipes are none of the tool's business.
void settle(const std::string& file) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  const int output = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (output < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) _exit(1);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0) _exit(1);
}

}  // namespace

std::optional<std::vector<std::string>> StackTool::command_for(pid_t process,
                                                               const std::string& search_path) {
  using Words = std::vector<std::string>;
  const std::string pid = std::to_string(process);
  const auto installed = [&](const char* name) { return found(name, search_path); };
  if (const auto tool = installed("py-spy"); !tool.empty() && runs_python(process))
    return Words{tool, "dump", "--pid", pid};
  if (const auto tool = installed("eu-stack"); !tool.empty()) return Words{tool, "-p", pid};
  if (const auto tool = installed("gdb"); !tool.empty())
    return Words{tool, "-nx", "-batch", "-p", pid, "-ex", "thread apply all backtrace"};
  return std::nullopt;
}

StackTool::StackTool(const std::vector<std::string>& command, const Environment& environment,
                     const std::string& file) {
  Environment variables = environment;
  // Debuggers would ask servers for what is not on this host.
  variables.erase("DEBUGINFOD_URLS");
  // Whether it begins is seen from what it says: nothing waits for a file system that hangs.
  pid_ = SpawnedProcess(command, variables, [&] { settle(file); }).pid();
}

StackTool::~StackTool() {
  if (!has_ended()) ::kill(pid_, asked_ ? SIGKILL : SIGTERM);
}

void StackTool::ask_to_end() {
  asked_ = true;
  if (!has_ended()) ::kill(pid_, SIGTERM);
}

bool StackTool::has_ended() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = 0;
  return pid_ == 0;
}

}  // namespace lockstep::launch
