#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep stacks PID`: asks the launcher with that process id. Returns the exit status. Throws UsageError
/// where the process is no launcher of this user's: the signal would end others.
int stacks_command(const std::vector<std::string>& words, std::ostream& out);

}  // namespace lockstep::launch
