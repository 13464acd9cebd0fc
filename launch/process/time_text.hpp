#pragma once

#include <chrono>
#include <string>

namespace lockstep::launch {

/// "30 s", "0.25 s".
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace lockstep::launch
