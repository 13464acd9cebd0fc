#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Lists, explains and removes the cached results of map.
int cache_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
