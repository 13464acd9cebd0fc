#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep prepare PROGRAM ...`: the words after "prepare". Becomes the program, as one process with
/// LOCKSTEP_PREPARE=1: exit status and signals are the program's own. Returns only when it has not become it:
/// 2 for a wrong command line, 126 and 127 as a shell; 0 in a Slurm task other than the step's first, of
/// which there should be none. *Local*.
int prepare_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
