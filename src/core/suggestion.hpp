#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// " (did you mean '<prefix><nearest>'?)" with the candidate that is most likely meant by a misspelt `word`,
/// or an empty text when none is near: at most one letter in three may be wrong, missing, too many or swapped
/// with its neighbour. *Local*.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace lockstep
