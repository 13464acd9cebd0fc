#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep new NAME`: writes the folder NAME with a trainer to start from, as it is built, tested, run and
/// submitted. Returns the exit status; nothing is written when it is not 0. *Local*.
int new_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
