#pragma once

#include <chrono>
#include <ctime>
#include <string>

namespace lockstep {

/// Times and durations for people. All *Local*. Clocks: RunningClock (core/running_clock.hpp) does not count
/// pauses of this process.

/// Exact: "30 s", "0.25 s".
std::string format_seconds(std::chrono::milliseconds time);

/// In whole seconds, rounded down: "30 s".
std::string format_whole_seconds(std::chrono::milliseconds time);

/// As many digits as a reader needs: "250 ms", "1.5 s", "31 s".
std::string format_duration(std::chrono::milliseconds time);

/// For clocks and remaining times: "02:05", and "1:02:05" from an hour on; "?" for negative and for absurdly
/// long ones.
std::string format_clock(double seconds);

/// Formats a time in seconds since 1970 with strftime; `parts_of` is gmtime_r or localtime_r. Empty if the
/// time is out of range.
std::string format_time(std::time_t time, const char* format,
                        std::tm* (*parts_of)(const std::time_t*, std::tm*));

}  // namespace lockstep
