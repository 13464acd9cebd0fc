#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// A filter's application to a value.
struct FilterCall {
  Budget& budget;
  const std::string& name;
  const Value& value;
  const Arguments& arguments;

  std::string title() const { return "the filter '" + name + "'"; }
  Value text(std::string made, bool markup = false) const {
    return Value::text(budget, std::move(made), markup);
  }
};
using Filter = Value (*)(const FilterCall& call);
using Filters = std::unordered_map<std::string_view, Filter>;

/// Applies jinja2's filter of this name, with transformers' own tojson. Throws Failure for one that is not
/// there or not supported.
Value apply_filter(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments);
bool has_filter(std::string_view name);
/// What is wrong with the name of a filter that is not there.
std::string unknown_filter(std::string_view name);

/// The filters of texts and numbers, and those of lists and dictionaries.
const Filters& text_filters();
const Filters& list_filters();

}  // namespace lockstep::jinja
