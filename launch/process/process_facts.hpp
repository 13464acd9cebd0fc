#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::launch {

/// What /proc tells of processes. All *Local*; a process that is gone has no facts.

/// The processes of the host, as far as they are seen from here.
std::vector<pid_t> all_processes();
/// The living and dead-but-unreaped children of this process.
std::vector<pid_t> child_processes();

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
