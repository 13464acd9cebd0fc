#pragma once

#include <optional>
#include <string>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// How a field of a format shows its value: the fields of Python's format specifications.
struct FieldStyle {
  char align = 0;
  char fill = ' ';
  bool plus = false;
  bool blank = false;
  bool alternate = false;
  bool zero = false;
  bool grouped = false;
  std::size_t width = 0;
  std::optional<std::size_t> precision = std::nullopt;
  /// 0 if it is not given.
  char type = 0;
};

/// A number with one of the types d, x, X, o, b, e, E, f, F, g, G, without its padding. Throws Failure for a
/// precision above 1000.
std::string format_number(const Value& value, const FieldStyle& style);
/// Pads a text to the field's width; `sign` characters at its begin stay before zeros.
std::string pad(Budget& budget, std::string text, const FieldStyle& style, char otherwise);

}  // namespace lockstep::jinja
