#pragma once

#include <string>

namespace lockstep::launch {

/// A word as a shell would take it.
std::string shell_word(const std::string& word);

}  // namespace lockstep::launch
