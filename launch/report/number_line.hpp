#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// A line of a tracker that is a JSON object of finite numbers, as nearly all are:
/// {"step":1,"train/loss":0.5}. Fills `values` with its names, which point into the line, and numbers. False
/// for any other line, also for a damaged one: parse_python_text() reads it, or says why it cannot. *Local*.
bool read_number_line(std::string_view line, std::vector<std::pair<std::string_view, double>>& values);

}  // namespace lockstep::launch
