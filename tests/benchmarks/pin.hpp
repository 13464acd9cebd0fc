#pragma once

#include <sched.h>
#include <unistd.h>

namespace lockstep::benchmarks {

/// One CPU for each rank, as mpirun does by itself; nothing where there are fewer CPUs than ranks.
inline void pin(int rank, int ranks) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < ranks) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(rank), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace lockstep::benchmarks
