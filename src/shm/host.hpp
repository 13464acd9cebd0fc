#pragma once

#include <string>

namespace lockstep::shm {

/// What two ranks must have in common before it is worth trying whether they share memory: the kernel that
/// runs (its boot id), the network namespace, in which abstract sockets live, and the user.
std::string host_identity();

}  // namespace lockstep::shm
