#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Draws a training's output folder, or several beside each other, as one HTML file.
int report_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
