#pragma once

#include <iosfwd>

#include "plan/launch_plan.hpp"

namespace lockstep::launch {

/// Writes, for each rank, the words that would be executed and the variables that would differ from
/// `environment`.
void print_plan(const LaunchPlan& plan, const Environment& environment, std::ostream& out);

}  // namespace lockstep::launch
