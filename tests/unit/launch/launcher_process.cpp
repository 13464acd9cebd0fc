#include "launcher_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/without_pidfds.hpp"

namespace lockstep::launch {
namespace {

void redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(99);
}

}  // namespace

ScratchFolder::ScratchFolder() : path_(std::filesystem::temp_directory_path() / "lockstep_test_XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

ScratchFolder::~ScratchFolder() { std::filesystem::remove_all(path_); }

std::string ScratchFolder::write(const std::string& name, const std::string& text, bool executable) const {
  std::ofstream(file(name)) << text;
  if (executable) std::filesystem::permissions(file(name), std::filesystem::perms::owner_all);
  return file(name);
}

LauncherProcess::LauncherProcess(const std::vector<std::string>& arguments, const Environment& variables,
                                 const std::function<void()>& in_child, const std::string& program) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Environment environment = process_environment();
  for (const auto& [name, value] : variables) environment[name] = value;
  std::vector<std::string> assignments;
  for (const auto& [name, value] : environment) assignments.push_back(name + "=" + value);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (auto& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  const auto argument_pointers = pointers(words);
  const auto environment_pointers = pointers(assignments);
  pid_ = fork();
  if (pid_ != 0) return;
  redirect(STDOUT_FILENO, output_.file("out"));
  redirect(STDERR_FILENO, output_.file("err"));
  if (in_child) in_child();
  execve(program.c_str(), argument_pointers.data(), environment_pointers.data());
  _exit(99);
}

LauncherProcess::~LauncherProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void LauncherProcess::signal(int number) const { ASSERT_EQ(kill(pid_, number), 0); }

std::string LauncherProcess::out() const { return read_file(output_.file("out")); }

std::string LauncherProcess::err() const { return read_file(output_.file("err")); }

Finished LauncherProcess::wait(std::chrono::seconds limit) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) {
    ADD_FAILURE() << "the launcher did not end";
    status = end();
  }
  pid_ = 0;
  const int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return {code, read_file(output_.file("out")), read_file(output_.file("err"))};
}

int LauncherProcess::end() {
  int status = 0;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 2000; ++i) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, &status, 0);
  return status;
}

void forbid_pidfds() {
  if (!testing::live_without_pidfds()) _exit(98);
}

Finished launch(const std::vector<std::string>& arguments, const Environment& variables) {
  return LauncherProcess(arguments, variables).wait();
}

bool eventually(const std::function<bool()>& works, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!works()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

pid_t await_number(const std::string& path, std::chrono::seconds limit) {
  if (!eventually([&] { return std::filesystem::exists(path); }, limit)) {
    ADD_FAILURE() << path << " was not written";
    return 0;
  }
  return std::atoi(read_file(path).c_str());
}

bool is_gone(pid_t process) {
  const std::string stat = read_file("/proc/" + std::to_string(process) + "/stat");
  const auto name_end = stat.rfind(") ");
  return name_end == std::string::npos || stat[name_end + 2] == 'Z';
}

bool await_end(pid_t process) {
  return eventually([&] { return is_gone(process); });
}

}  // namespace lockstep::launch
