#pragma once

#include <string>
#include <string_view>

namespace lockstep::jinja {

struct StringLiteral {
  std::string text;
  /// What is wrong with the literal, otherwise empty.
  std::string error = {};
};

/// The text of a string literal without its quotes: what Python's unicode-escape codec makes of it.
StringLiteral read_string_literal(std::string_view literal);

}  // namespace lockstep::jinja
