#pragma once

#include <string>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Whether a value has a method of this name in Python, of those that may be called.
bool has_method(const Value& object, const std::string& name);
/// Whether it is a method that changes its object, which the sandbox forbids.
bool changes_object(const Value& object, const std::string& name);

/// Calls a method. Throws Failure for one of Python's that is not supported.
Value call_method(Budget& budget, const MethodObject& method, const Arguments& arguments);

}  // namespace lockstep::jinja
