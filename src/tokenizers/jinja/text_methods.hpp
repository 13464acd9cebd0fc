#pragma once

#include <string>
#include <string_view>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Whether Python's str has a method of this name.
bool is_text_method(std::string_view name);
/// Calls it. Throws Failure for one that is not supported: casefold, encode, format_map, isdecimal,
/// isidentifier, isnumeric, istitle, maketrans, translate.
Value call_text_method(Budget& budget, const Value& text, const std::string& name,
                       const Arguments& arguments);

/// The text with `old` replaced; `count` is the greatest number of replacements, or negative for all.
std::string replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view by,
                         std::int64_t count);
/// The text between blanks that fill it up to a width.
std::string center_text(Budget& budget, std::string_view text, std::int64_t width);

}  // namespace lockstep::jinja
