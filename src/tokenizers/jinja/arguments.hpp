#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// What a function, filter or test is called with.
struct Arguments {
  Values positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// The arguments by their positions in a list of parameters.
class Bound {
 public:
  /// Throws Failure, naming the `function`, for arguments that the parameters do not take. The first
  /// `required` parameters must be there.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> parameters,
        std::size_t required = 0);

  bool has(std::size_t position) const { return values_[position].has_value(); }
  const Value& operator[](std::size_t position) const { return *values_[position]; }
  /// Whether an argument is there and true.
  bool flag(std::size_t position) const { return has(position) && is_true(*values_[position]); }
  /// The argument, or another value if it is not there or None. Throws Failure for another type.
  std::int64_t integer(std::size_t position, std::int64_t otherwise) const;
  const std::string& text(std::size_t position) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace lockstep::jinja
