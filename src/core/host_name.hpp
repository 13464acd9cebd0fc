#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace lockstep {

/// The host name by gethostname, without a name server. "unknown" if the system does not provide one.
/// *Local*.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "unknown";
  return name.data();
}

}  // namespace lockstep
