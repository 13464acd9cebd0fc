#pragma once

#include <vector>

#include "core/cpu_set.hpp"

namespace lockstep::shm {

/// Which CPUs a rank may use, and how many of them its computing takes.
struct Processors {
  CpuSet cpus;
  int threads = 1;
};

/// How many different CPUs these ranks may use together.
int count_cpus(const std::vector<Processors>& ranks);

/// A CPU for the communication thread of each of these ranks, no two the same, where that leaves each rank
/// one for each of its computing threads; else none. Of a rank's CPUs the highest that is free, because
/// programs that bind threads begin with the lowest.
std::vector<int> communication_cpus(const std::vector<Processors>& ranks);

}  // namespace lockstep::shm
