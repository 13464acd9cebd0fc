#include "process/process_facts.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/runtime/process_handle.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(pid_t process) { return fs::path("/proc") / std::to_string(process); }

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The words behind "<name>:" in a file of such lines.
std::string field(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    const auto start = line.find_first_not_of(" \t", name.size() + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

bool in_mask(pid_t process, const std::string& mask, int number) {
  const std::string digits = field(folder_of(process) / "status", mask);
  return ((std::strtoull(digits.c_str(), nullptr, 16) >> (number - 1)) & 1) != 0;
}

std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "    " + line + "\n";
  return result;
}

std::string thread_text(const fs::path& folder) {
  const std::string wait = text_of(folder / "wchan");
  return "thread " + folder.filename().string() + " (" + field(folder / "status", "Name") +
         "): " + field(folder / "status", "State") +
         (wait.empty() || wait == "0" ? "" : ", waits in " + wait) + "\n" +
         indented(text_of(folder / "stack"));
}

}  // namespace

std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename();
    pid_t process = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error == std::errc() && stop == name.data() + name.size()) result.push_back(process);
  }
  return result;
}

std::vector<pid_t> child_processes() {
  std::vector<pid_t> result = all_processes();
  std::erase_if(result, [](pid_t process) { return process_stat(process).parent != getpid(); });
  return result;
}

bool handles_signal(pid_t process, int number) { return in_mask(process, "SigCgt", number); }

bool blocks_signal(pid_t process, int number) { return in_mask(process, "SigBlk", number); }

bool is_stopped(pid_t process) { return process_stat(process).state == 'T'; }

std::string program_of(pid_t process) {
  std::error_code failure;
  const fs::path path = fs::read_symlink(folder_of(process) / "exe", failure);
  return failure ? "" : path.string();
}

bool is_ours(pid_t process) {
  struct stat facts {};
  return stat(folder_of(process).c_str(), &facts) == 0 && facts.st_uid == geteuid();
}

std::string threads_in_kernel(pid_t process) {
  std::string result;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder_of(process) / "task", failure)) {
    result += thread_text(entry.path());
  }
  return result;
}

}  // namespace lockstep::launch
