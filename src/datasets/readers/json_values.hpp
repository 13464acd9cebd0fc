#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/datasets/value.hpp"

namespace lockstep::readers {

/// What an integer of JSON becomes that is outside of int64 and uint64: the nearest floating number, or its
/// digits as Bytes, which nothing else in JSON is.
enum class LongIntegers { as_reals, as_digits };

/// One JSON document as a value, in time and memory that grow with its length. Throws DataError if the text
/// is not UTF-8 or not JSON, is nested too deeply, or has a name twice in an object; `what` names the text
/// ("line 3 of 'a.jsonl'").
Value parse_json(std::string_view text, const std::string& what,
                 LongIntegers long_integers = LongIntegers::as_reals);

/// The position of the quote that closes a string, whose first character is at `position`; the size of `text`
/// if there is none.
inline std::size_t find_closing_quote(std::string_view text, std::size_t position) noexcept {
  for (; position < text.size() && text[position] != '"'; ++position) {
    if (text[position] == '\\') ++position;
  }
  return position < text.size() ? position : text.size();
}

/// Whether the text is one JSON document by its syntax.
bool is_json(std::string_view text);

}  // namespace lockstep::readers
