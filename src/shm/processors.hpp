#pragma once

#include <string>
#include <vector>

namespace lockstep::shm {

/// Which CPUs a rank may use, and how many of them its computing takes.
struct Processors {
  std::string cpus;  // Hexadecimal words, each with a dot behind it, the lowest CPUs first.
  int threads = 1;
};

/// The CPUs that this thread may run on, as such words.
std::string own_cpus();

/// How many different CPUs these ranks may use together.
int count_cpus(const std::vector<Processors>& ranks);

/// A CPU for the communication thread of each of these ranks, no two the same, where that leaves each rank
/// one for each of its computing threads; else none. Of a rank's CPUs the highest that is free, because
/// programs that bind threads begin with the lowest.
std::vector<int> communication_cpus(const std::vector<Processors>& ranks);

/// From now on the calling thread runs on that CPU alone. Does nothing where the system refuses, and says so:
/// it is a matter of speed.
bool bind_thread_to(int cpu) noexcept;

/// Such words for people: "0-3,8".
std::string cpu_list(const std::string& cpus);

}  // namespace lockstep::shm
