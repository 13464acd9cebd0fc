#include "process/process_facts.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/cpu_set.hpp"
#include "core/file_system.hpp"
#include "core/text.hpp"
#include "net/file_descriptor.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(pid_t process) { return fmt::format("/proc/{}", process); }

/// In the order of the file system; nothing if the folder cannot be read.
template <class Action>
void for_each_entry(const fs::path& folder, Action action) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    action(entry->path());
}

}  // namespace

std::optional<std::string> read_end(const fs::path& path, std::size_t most) {
  // Not an InputFile, which would throw for each rank without an error file.
  const net::FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto size = static_cast<std::size_t>(status.st_size);
  std::string text(std::min(size, most), '\0');
  const auto start = static_cast<off_t>(size - text.size());
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count = file_system::uninterrupted([&] {
      return pread(file.get(), text.data() + length, text.size() - length,
                   start + static_cast<off_t>(length));
    });
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

std::string value_in(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line) && !line.starts_with(key)) continue;
  const auto begin = file ? line.find_first_not_of(" \t:=\"", key.size()) : std::string::npos;
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
}

std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> result;
  for_each_entry(folder, [&](const fs::path& path) { result.push_back(path); });
  std::ranges::sort(result, {}, &fs::path::native);
  return result;
}

std::map<int, fs::path> numbered_entries(const fs::path& folder, std::string_view prefix) {
  std::map<int, fs::path> result;
  for_each_entry(folder, [&](const fs::path& path) {
    const std::string_view name = std::string_view(path.native()).substr(path.native().rfind('/') + 1);
    if (!name.starts_with(prefix)) return;
    if (const auto number = parse_whole_number(name.substr(prefix.size()))) result[*number] = path;
  });
  return result;
}

std::string find_program(const std::string& name, const std::string& search_path) {
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  for (const auto& [process, unused] : numbered_entries("/proc")) result.push_back(process);
  return result;
}

SignalMasks::SignalMasks(pid_t process) {
  std::ifstream file(folder_of(process) / "status");
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 8 || !line.starts_with("Sig")) continue;
    const std::uint64_t mask = std::strtoull(line.c_str() + 8, nullptr, 16);
    if (line.starts_with("SigCgt:")) handled_ = mask;
    if (line.starts_with("SigBlk:")) blocked_ = mask;
    if (line.starts_with("SigIgn:")) ignored_ = mask;
  }
}

// A line of /proc/PID/syscall has the number of the system call and its arguments, of which the first is the
// address of the mask here.
bool awaits_signal(pid_t process, int number) {
  std::ifstream file(folder_of(process) / "syscall");
  long call = -1;
  std::string address;
  if (!(file >> call >> address) || call != SYS_rt_sigtimedwait) return false;
  const net::FileDescriptor memory(open((folder_of(process) / "mem").c_str(), O_RDONLY | O_CLOEXEC));
  std::uint64_t mask = 0;
  const auto offset = static_cast<off_t>(std::strtoull(address.c_str(), nullptr, 16));
  return memory && pread(memory.get(), &mask, sizeof mask, offset) == sizeof mask &&
         ((mask >> (number - 1)) & 1) != 0;
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
  for (const auto& [thread, folder] : numbered_entries(folder_of(process) / "task")) {
    const std::string wait = first_line(folder / "wchan");
    result += fmt::format("thread {} ({}): {}{}\n", thread, value_in(folder / "status", "Name"),
                          value_in(folder / "status", "State"),
                          wait.empty() || wait == "0" ? "" : ", waits in " + wait);
    std::ifstream stack(folder / "stack");
    result += indent_lines({std::istreambuf_iterator<char>(stack), {}}, "    ");
  }
  return result;
}

std::optional<std::int64_t> oom_kills(const std::string& membership, const std::string& mount) {
  for (const auto& cgroup : read_cgroups(membership)) {
    if (!cgroup.has("memory") && !cgroup.is_v2()) continue;
    const std::string file = cgroup.is_v2() ? mount + cgroup.path + "/memory.events"
                                            : mount + "/memory" + cgroup.path + "/memory.oom_control";
    const auto count = parse_number<std::int64_t>(value_in(file, "oom_kill "));
    if (count) return count;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
