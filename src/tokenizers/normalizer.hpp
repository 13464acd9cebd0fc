#pragma once

#include <memory>
#include <string_view>

#include "tokenizers/json_file.hpp"
#include "tokenizers/normalized_string.hpp"
#include "tokenizers/unicode.hpp"

namespace lockstep::tokenizer {

// Steps of normalizers. An inserted character, and each part of a split one, has the source of its original.

/// Removes the characters with the property.
void remove(Characters& text, Property property);
/// Replaces each white-space character by a space.
void blank_spaces(Characters& text);
/// Puts a space before and after each character with the property.
void set_apart(Characters& text, Property property);
/// Converts to lower case, character by character.
void lower(Characters& text);

/// Transforms text before it is split: case, accents, normal forms. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  /// Normalizes a text whose first character has the number `first`.
  virtual void apply(Characters& text, std::uint32_t first) const = 0;

  /// Sets `result` to the normalized form of valid text whose first character has the number `first`.
  virtual void normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const;
};

/// Creates the normalizer of a file's field "normalizer". Throws DataError if it is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Node& node);

/// The normalized text; the text itself if `normalizer` is null.
std::string normalized(const Normalizer* normalizer, std::string_view text);

}  // namespace lockstep::tokenizer
