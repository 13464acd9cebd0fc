#pragma once

#include <string>
#include <string_view>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Applies jinja2's test of this name. Throws Failure for one that does not exist.
bool apply_test(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments);
bool has_test(std::string_view name);
/// What is wrong with the name of a test that does not exist.
std::string unknown_test(std::string_view name);

}  // namespace lockstep::jinja
