#pragma once

#include <iosfwd>

#include "config/launch_config.hpp"

namespace lockstep::launch {

/// Writes, for each rank, the words that would be executed and the variables that would differ from
/// `environment`.
void print_config(const LaunchConfig& config, const Environment& environment, std::ostream& out);

}  // namespace lockstep::launch
