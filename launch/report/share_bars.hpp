#pragma once

#include <string>
#include <vector>

#include "report/run_record.hpp"

namespace lockstep::launch {

/// How ranks or runs spent their time: a bar of shares for each, a legend, and a table of the numbers, as
/// HTML. *Local*.
std::string share_bars(const std::vector<SpentTime>& bars);

}  // namespace lockstep::launch
