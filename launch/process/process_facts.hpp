#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep::launch {

/// What /proc tells of a process of this user's. All *Local*; a process that is gone has no facts.

/// Whether the process has a handler for the signal: to others it must not be sent, as it would end them.
bool handles_signal(pid_t process, int number);
/// Whether the process holds the signal back, to read it where it likes.
bool blocks_signal(pid_t process, int number);
/// Whether it has been stopped (SIGSTOP): it does nothing, signals included, until it is told to go on.
bool is_stopped(pid_t process);
/// The path of its program; empty where it cannot be seen.
std::string program_of(pid_t process);
/// Whether it runs for the user who asks.
bool is_ours(pid_t process);

/// For each thread its name, state, and where in the kernel it waits, as far as the kernel tells.
std::string threads_in_kernel(pid_t process);

}  // namespace lockstep::launch
