#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep stage SRC [DEST]`: the words after "stage". Returns the exit status: 2 for a wrong command line.
/// SIGINT and SIGTERM end it without a trace of what was not finished. *Local*.
int stage_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
