#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What this host is, for people: names ("system", "CPU", "CPUs", "memory", "GPUs") and values, in this
/// order. What the system does not say is left out. CPUs are all of them, also those that a rank may not use;
/// GPUs are NVIDIA's. Does not throw for what it finds. *Local*.
std::vector<std::pair<std::string, std::string>> host_hardware();

}  // namespace lockstep
