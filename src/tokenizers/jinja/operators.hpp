#pragma once

#include <string_view>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Python's +, -, *, /, //, % and **. Throws Failure for types that have none, and for integers beyond 64
/// bits.
Value arithmetic(Budget& budget, std::string_view sign, const Value& left, const Value& right);
Value negative(const Value& value);
Value positive(const Value& value);
/// One of ==, !=, <, <=, >, >=, in, not in.
bool compare(Budget& budget, std::string_view sign, const Value& left, const Value& right);
/// The texts of the values one after the other: the sign ~.
Value concatenate(Budget& budget, const Values& values);
/// With &, <, > and quotes as HTML writes them.
std::string escape_html(std::string_view text);

}  // namespace lockstep::jinja
