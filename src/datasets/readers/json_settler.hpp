#pragma once

#include <functional>
#include <string_view>

#include "lockstep/datasets/features.hpp"
#include "lockstep/datasets/value.hpp"

namespace lockstep::readers {

/// Called for an integer that a column of floating numbers rounds.
using Rounded = std::function<void(std::string_view integer, double number)>;

/// What a value of parse_json, with long integers as digits, is before it is converted to a column's type:
/// integers are floating numbers where the type is float64 or shorter, and objects and lists are text, as
/// JSON, where the type is text, and all values where the feature is Json. Throws UsageError for an integer that the type of integers does not hold.
Value settled_json(const Value& value, const Feature& feature, const Rounded& rounded);

}  // namespace lockstep::readers
