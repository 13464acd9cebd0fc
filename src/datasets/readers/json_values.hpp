#pragma once

#include <string>
#include <string_view>

#include "lockstep/datasets/value.hpp"

namespace lockstep::readers {

/// The JSON of a text as a value. `what` names it in errors ("line 3 of 'a.jsonl'"). Throws DataError for
/// what is no UTF-8, no JSON, lies more than 64 levels deep, or gives a name twice. Reads without recursion.
Value parse_value(std::string_view text, const std::string& what);

}  // namespace lockstep::readers
