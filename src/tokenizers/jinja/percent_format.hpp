#pragma once

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Python's `format % values`, with a tuple of values, a dictionary, or one value.
Value percent_format(Budget& budget, const Value& format, const Value& values);

}  // namespace lockstep::jinja
