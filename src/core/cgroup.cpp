#include "core/cgroup.hpp"

#include <fstream>
#include <sstream>

namespace lockstep {

bool CgroupMembership::has(const std::string& controller) const {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

std::vector<CgroupMembership> read_cgroups(const std::string& file) {
  std::ifstream lines(file);
  std::vector<CgroupMembership> result;
  // "number:controllers:path".
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::string number;
    CgroupMembership membership;
    if (std::getline(parts, number, ':') && std::getline(parts, membership.controllers, ':') &&
        std::getline(parts, membership.path))
      result.push_back(membership);
  }
  return result;
}

}  // namespace lockstep
