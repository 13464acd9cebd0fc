#pragma once

#include <string>

namespace lockstep::launch {

/// Numbers as a report writes them. All *Local*.

/// A whole number with thousands separated: "10,064".
std::string count_words(double number);

/// About four digits: "0.0132", "4,044.6", "1.2e-7"; "NaN", "infinity", "minus infinity".
std::string number_words(double number);

/// "0.25 s", "3 min 20 s", "5 h 12 min", "2 days 3 h".
std::string duration_words(double seconds);

/// A time since 1970 on this host's clock: "2026-11-27 18:45:12"; "unknown" for what is no time.
std::string time_words(double seconds);

/// "12.5 %".
std::string percent_words(double share);

/// "1 rank", "2 ranks".
std::string counted(double number, const std::string& noun);

}  // namespace lockstep::launch
