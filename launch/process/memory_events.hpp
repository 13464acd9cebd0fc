#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// How many processes of this process's cgroup (and of those below it) the kernel's OOM killer has ended
/// since the cgroup was made; nothing where no cgroup tells. Read before and after, the difference
/// says whether a SIGKILL came from there. Understands cgroup v2 (`memory.events`) and v1
/// (`memory.oom_control`). Never throws. *Local*.
///
/// `membership` is the file that names the cgroup, `mount` the folder where cgroups are seen; others only in
/// tests.
std::optional<std::int64_t> oom_kills(const std::string& membership = "/proc/self/cgroup",
                                      const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::launch
