#pragma once

#include <string>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Python's repr() of a float: "1.0", "1e-05".
std::string float_repr(double number);
/// Python's repr() of a string, with its quotes.
void add_quoted(Text& text, const std::string& string);

/// Python's str() and repr(). Throws Failure for objects that Python shows by their address.
std::string to_text(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);
/// A value as a text, unless it is one.
Value soft_text(Budget& budget, const Value& value);

}  // namespace lockstep::jinja
