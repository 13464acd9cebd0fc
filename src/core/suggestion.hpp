#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// " (did you mean '<prefix><nearest>'?)" with the candidate most similar to a misspelled `word`; empty if
/// none is similar: at most one character in three may be wrong, missing, extra or swapped with its neighbor.
/// *Local*.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace lockstep
