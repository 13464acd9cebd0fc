#include "process/time_text.hpp"

#include <fmt/core.h>

namespace lockstep::launch {

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000.0);
}

}  // namespace lockstep::launch
