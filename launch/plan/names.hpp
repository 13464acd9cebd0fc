#pragma once

#include <string>

namespace lockstep::launch {

/// As many random hexadecimal digits.
std::string random_id(int length);

/// The text without the signs that would make it a path.
std::string file_name(std::string text);

}  // namespace lockstep::launch
