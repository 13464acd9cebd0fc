#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Of what an exception says: LibTorch adds a trace of its calls.
inline std::string first_line_of(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace lockstep
