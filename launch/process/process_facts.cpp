#include "process/process_facts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

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

std::optional<ProcessStat> process_stat(pid_t process) {
  const std::string text = text_of(folder_of(process) / "stat");
  // "pid (name) state parent ...": the name may hold anything, its last ')' ends it.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state >> stat.parent;
  // The start is field 22. proc(5).
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return fields ? std::optional(stat) : std::nullopt;
}

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
  std::erase_if(result, [](pid_t process) {
    const auto stat = process_stat(process);
    return !stat || stat->parent != getpid();
  });
  return result;
}

bool handles_signal(pid_t process, int number) { return in_mask(process, "SigCgt", number); }

bool blocks_signal(pid_t process, int number) { return in_mask(process, "SigBlk", number); }

bool is_stopped(pid_t process) {
  const auto stat = process_stat(process);
  return stat && stat->state == 'T';
}

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
