#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The cgroup of a process in one hierarchy: a line of /proc/<pid>/cgroup. cgroups(7).
struct CgroupMembership {
  /// "cpu,cpuacct"; empty: cgroup v2, which has all controllers.
  std::string controllers;
  std::string path;

  bool is_v2() const noexcept { return controllers.empty(); }
  /// Whether it is the v1 hierarchy of this controller.
  bool has(const std::string& controller) const;
};

/// Lines that are of another form are left out. Never throws for what it finds. *Local*.
std::vector<CgroupMembership> read_cgroups(const std::string& file);

}  // namespace lockstep
