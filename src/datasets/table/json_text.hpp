#pragma once

#include <string>
#include <string_view>

namespace lockstep::json_text {

// Pieces of JSON, added to the end of a text.

/// In quotes, with what must be escaped escaped; other characters as they are (UTF-8). Bytes that are no
/// UTF-8 become U+FFFD, so that the result is JSON whatever came.
void string(std::string& text, std::string_view value);

/// The shortest digits that read as the same double, with a point or an exponent; NaN, Infinity and
/// -Infinity as Python's json writes them.
void number(std::string& text, double value);

/// In quotes, in base64 (RFC 4648, section 4).
void base64(std::string& text, std::string_view bytes);

}  // namespace lockstep::json_text
