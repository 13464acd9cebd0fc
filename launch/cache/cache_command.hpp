#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep cache ...`: the words after "cache". Returns the exit status: 2 for a wrong command line, 1 when
/// something that was to be removed is in use. *Local*.
int cache_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
