#include "tokenizers/jinja/arguments.hpp"

#include <fmt/core.h>

namespace lockstep::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<const char*> parameters, std::size_t required)
    : function_(function), values_(parameters.size()) {
  if (arguments.positional.size() > values_.size()) {
    fail(fmt::format("{} takes at most {} arguments, not {}.", function, values_.size(),
                     arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t position = 0;
    for (const auto* parameter : parameters) {
      if (name == parameter) break;
      ++position;
    }
    if (position == values_.size()) fail(fmt::format("{} takes no argument '{}'.", function, name));
    if (values_[position]) fail(fmt::format("{} is given its argument '{}' twice.", function, name));
    values_[position] = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(fmt::format("{} lacks its argument '{}'.", function, *(parameters.begin() + i)));
  }
}

std::int64_t Bound::integer(std::size_t position, std::int64_t otherwise) const {
  if (!has(position) || values_[position]->is(Kind::none)) return otherwise;
  require_defined(*values_[position]);
  if (!values_[position]->is_integer()) {
    fail(fmt::format("{} needs an integer, not a value of type '{}'.", function_,
                     type_name(*values_[position])));
  }
  return values_[position]->integer;
}

const std::string& Bound::text(std::size_t position) const {
  require_defined(*values_[position]);
  if (!values_[position]->is(Kind::text)) {
    fail(fmt::format("{} needs a string, not a value of type '{}'.", function_,
                     type_name(*values_[position])));
  }
  return text_of(*values_[position]);
}

}  // namespace lockstep::jinja
