#pragma once

#include <string>

namespace lockstep::launch {

/// What stands in front of a rank's lines: `pattern` with ${role_name}, ${rank} and ${local_rank} (or $rank)
/// replaced, or "[role0]: " when it is empty.
std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank);

}  // namespace lockstep::launch
