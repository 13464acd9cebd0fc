#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.hpp"

namespace lockstep::launch {

/// Facts from /proc, /sys and cgroups. All functions are *Local*. None throws for missing files or processes;
/// a process that has ended has no facts.

using file_system::first_line;
/// At most the last `most` bytes of a regular file; nullopt if there is none. Other kinds, such as a pipe
/// that a rank has put in its place, are not read, as they might block.
std::optional<std::string> read_end(const std::filesystem::path& file, std::size_t most);
/// The value on the first line that starts with `key`: the text after it, without separators (blanks, ':',
/// '=') and quotes. Empty if there is none.
std::string value_in(const std::filesystem::path& file, std::string_view key);
/// The entries of a folder, sorted by name.
std::vector<std::filesystem::path> entries_in(const std::filesystem::path& folder);
/// The entries `<prefix>n` of a folder by their number n.
std::map<int, std::filesystem::path> numbered_entries(const std::filesystem::path& folder,
                                                      std::string_view prefix = "");
/// The path of a program in the folders of `search_path`, a list like PATH; empty if not found.
std::string find_program(const std::string& name, const std::string& search_path);

/// The visible processes of the host, zombies included.
std::vector<pid_t> all_processes();

/// What a process does with signals, at the moment at which this object is made. A process that has ended
/// does nothing with any.
class SignalMasks {
 public:
  explicit SignalMasks(pid_t process);

  /// Whether it has a handler for the signal. Otherwise the signal would end it.
  bool handles(int number) const { return contains(handled_, number); }
  /// Whether its first thread blocks the signal, for example to read it later.
  bool blocks(int number) const { return contains(blocked_, number); }
  bool ignores(int number) const { return contains(ignored_, number); }

 private:
  static bool contains(std::uint64_t mask, int number) { return ((mask >> (number - 1)) & 1) != 0; }

  std::uint64_t handled_ = 0;
  std::uint64_t blocked_ = 0;
  std::uint64_t ignored_ = 0;
};
/// Whether the process's first thread is waiting for the signal in sigwait; the kernel does not count it as
/// blocked in that time.
bool awaits_signal(pid_t process, int number);
/// The path of its executable; empty if it cannot be read.
std::string program_of(pid_t process);
/// Whether it belongs to the calling user.
bool is_ours(pid_t process);

/// Name and state of each thread, and where in the kernel it waits, as far as the kernel shows this.
std::string threads_in_kernel(pid_t process);

/// How many processes of this process's cgroup (and of those below it) the kernel's OOM killer has killed
/// since the cgroup was created; nullopt if no cgroup tells. The difference between two calls shows whether a
/// SIGKILL came from it. Reads `memory.events` (cgroup v2) or `memory.oom_control` (v1). Tests pass other
/// paths.
std::optional<std::int64_t> oom_kills(const std::string& membership = "/proc/self/cgroup",
                                      const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::launch
