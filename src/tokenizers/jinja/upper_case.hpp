#pragma once

#include <string_view>

namespace lockstep::jinja {

/// The upper case of a character as Python's str.upper() gives it, one to three characters; empty for a
/// character that is its own.
std::u32string_view upper_case_of(char32_t code);
/// The same for str.title() and str.capitalize().
std::u32string_view title_case_of(char32_t code);

}  // namespace lockstep::jinja
