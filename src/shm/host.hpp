#pragma once

#include <sched.h>

#include <string>
#include <vector>

namespace lockstep::shm {

/// What two ranks must have in common before it is worth trying whether they share memory: the kernel that
/// runs (its boot id), the network namespace, in which abstract sockets live, and the user.
std::string host_identity();

/// The CPUs that this thread may run on, as hexadecimal words; and how many different ones several such texts
/// name together.
std::string own_cpus();
int count_cpus(const std::vector<std::string>& masks);

}  // namespace lockstep::shm
