#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace lockstep {

/// What this host calls itself, without asking anybody: gethostname, no name server. "unknown" where the
/// system does not tell. *Local*.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "unknown";
  return name.data();
}

}  // namespace lockstep
