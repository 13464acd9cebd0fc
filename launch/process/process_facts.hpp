#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// What /proc, /sys and cgroups tell. All *Local*, and nothing throws for what it finds; a process that is
/// gone has no facts.

/// The first line of a file; empty where there is none.
std::string first_line(const std::filesystem::path& file);
/// The last bytes of a regular file, at most `most`; nothing where there is none. Others, as a pipe that a
/// rank may have put in its place, are not read: they might block.
std::optional<std::string> read_end(const std::filesystem::path& file, std::size_t most);
/// What follows `key`, a colon or '=' and blanks on the first line that begins with it, without quotes; empty
/// where there is none.
std::string value_in(const std::filesystem::path& file, std::string_view key);
/// The entries of a folder, in the order of their names.
std::vector<std::filesystem::path> entries_in(const std::filesystem::path& folder);
/// The numbers n of the entries `<prefix>n` of a folder, with their paths, in the order of n.
std::map<int, std::filesystem::path> numbered_entries(const std::filesystem::path& folder,
                                                      std::string_view prefix = "");
/// The path of a program in the folders of `search_path`, as in PATH; empty where it is in none.
std::string find_program(const std::string& name, const std::string& search_path);

/// The processes of the host, as far as they are seen from here; dead ones that nobody has reaped, too.
std::vector<pid_t> all_processes();

/// Whether the process has a handler for the signal: to others it must not be sent, as it would end them.
bool handles_signal(pid_t process, int number);
/// Whether the process blocks the signal, to read it where it likes.
bool blocks_signal(pid_t process, int number);
/// The path of its program; empty where it cannot be seen.
std::string program_of(pid_t process);
/// Whether it runs for the user who asks.
bool is_ours(pid_t process);

/// For each thread its name, state, and where in the kernel it waits, as far as the kernel tells.
std::string threads_in_kernel(pid_t process);

/// How many processes of this process's cgroup (and of those below it) the kernel's OOM killer has ended
/// since the cgroup was made; nothing where no cgroup tells. The difference between two calls says whether a
/// SIGKILL came from there. cgroup v2 (`memory.events`) and v1 (`memory.oom_control`). Tests name other
/// files.
std::optional<std::int64_t> oom_kills(const std::string& membership = "/proc/self/cgroup",
                                      const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::launch
