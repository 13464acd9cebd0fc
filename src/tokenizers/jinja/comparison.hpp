#pragma once

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// Python's ==. Values of different types differ, but for numbers.
bool is_equal(Budget& budget, const Value& left, const Value& right);
/// Python's <. Throws Failure for types that have no order.
bool is_less(Budget& budget, const Value& left, const Value& right);
/// Python's <=, which is not the opposite of > for lists and NaN.
bool is_less_or_equal(Budget& budget, const Value& left, const Value& right);
/// Python's `element in container`.
bool contains(Budget& budget, const Value& container, const Value& element);
/// Equal for equal values. Throws Failure for lists and dictionaries.
std::size_t hash_of(Budget& budget, const Value& value);
/// Python's `is`.
bool is_same(const Value& left, const Value& right);

}  // namespace lockstep::jinja
