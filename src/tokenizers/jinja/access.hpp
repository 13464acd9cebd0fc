#pragma once

#include <optional>
#include <string>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// `object.name` and `object[subscript]` as jinja2's sandbox gives them: an attribute before an element, and
/// the other way round. What there is not is undefined; so is what the sandbox forbids, like list.append.
Value get_attribute(Budget& budget, const Value& object, const std::string& name);
Value get_item(Budget& budget, const Value& object, const Value& subscript);

/// A slice of a text, a list, a tuple or a range; the bounds may be None.
Value get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                const Value& step);

/// An attribute, and no element; nothing if there is none.
std::optional<Value> find_attribute(Budget& budget, const Value& object, const std::string& name);

}  // namespace lockstep::jinja
