#pragma once

#include <string_view>

namespace lockstep::launch {

/// The style sheet of a report: light and dark, for screens of any width and for paper. *Local*.
std::string_view page_style();

}  // namespace lockstep::launch
