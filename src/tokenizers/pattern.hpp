#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizers/json_file.hpp"
#include "tokenizers/unicode.hpp"

namespace lockstep::tokenizer {

/// A range of bytes in a text.
struct ByteRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
using ByteRanges = std::vector<ByteRange>;

class Regex;

/// A search pattern: a fixed text, a regular expression, or characters with a property. Immutable: any thread
/// may search.
class Pattern {
 public:
  /// {"String": text} or {"Regex": expression}, as in files. Throws DataError for an expression that
  /// Oniguruma rejects.
  explicit Pattern(const Node& node);
  explicit Pattern(Property property) : what_(property) {}
  explicit Pattern(std::string text) : what_(std::move(text)) {}

  /// Sets `matches` to those in valid text, from left to right, without overlap. A regular expression may
  /// have an empty match between two characters. Throws DataError, naming the expression, if it needs too
  /// many steps.
  void find_all(std::string_view text, ByteRanges& matches) const;

  /// The text with each match replaced.
  std::string replaced(std::string_view text, std::string_view by) const;

 private:
  std::variant<std::string, std::shared_ptr<const Regex>, Property> what_;
};

}  // namespace lockstep::tokenizer
