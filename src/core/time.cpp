#include "core/time.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace lockstep {

std::string format_seconds(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000.0);
}

std::string format_whole_seconds(std::chrono::milliseconds time) {
  return fmt::format("{} s", std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

std::string format_duration(std::chrono::milliseconds time) {
  const std::int64_t milliseconds = time.count();
  if (milliseconds < 1000) return fmt::format("{} ms", milliseconds);
  if (milliseconds % 1000 == 0 || milliseconds > 10'000) return fmt::format("{} s", milliseconds / 1000);
  return fmt::format("{:.1f} s", static_cast<double>(milliseconds) / 1000);
}

std::string format_clock(double seconds) {
  // Longer than any job.
  constexpr double kLongest = 1e8;
  if (!(seconds >= 0.0 && seconds < kLongest)) return "?";
  const long whole = std::lround(std::floor(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

std::string format_time(std::time_t time, const char* format,
                        std::tm* (*parts_of)(const std::time_t*, std::tm*)) {
  std::tm parts{};
  if (parts_of(&time, &parts) == nullptr) return "";
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace lockstep
