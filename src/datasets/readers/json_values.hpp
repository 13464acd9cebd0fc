#pragma once

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

/// Whether the text is one JSON document by its syntax.
bool is_json(std::string_view text);

}  // namespace lockstep::readers
