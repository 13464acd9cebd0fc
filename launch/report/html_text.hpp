#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// A text as HTML and as the value of an attribute in double quotes: names from files may hold anything.
/// Bytes that are not UTF-8 are written as `\xe9`, control characters as U+FFFD. *Local*.
std::string html_text(std::string_view text);

/// The same, at most `most` bytes of it, with " ..." if anything was removed. *Local*.
std::string short_html_text(std::string_view text, std::size_t most);

}  // namespace lockstep::launch
