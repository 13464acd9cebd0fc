#pragma once

#include <string>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Python's str.format(): {}, {0}, {name}, {name.attribute[element]}, !r and !s, and format specifications
/// without fields of their own.
std::string brace_format(Budget& budget, const std::string& format, const Arguments& arguments);

}  // namespace lockstep::jinja
