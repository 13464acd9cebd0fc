#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "json_file.hpp"
#include "normalized_string.hpp"
#include "unicode.hpp"

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

/// BERT's text cleanup: see BertOptions.
class BertNormalizer final : public Normalizer {
 public:
  struct Settings {
    bool clean_text;
    bool handle_chinese_chars;
    bool strip_accents;
    bool lowercase;
  };
  explicit BertNormalizer(const Settings& settings);

  /// Step by step, like the Python package.
  void apply(Characters& text, std::uint32_t first) const override;
  /// The same in one pass, unless the text has marks that may have to be reordered.
  void normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const override;

 private:
  bool normalize_ascii(std::string_view text, NormalizedString& result) const;
  bool append(char32_t code, std::uint32_t number, NormalizedString& result) const;
  bool append_parts(char32_t code, std::uint32_t number, NormalizedString& result) const;
  void append_lower(char32_t code, std::uint32_t number, NormalizedString& result) const;

  Settings settings_;
  /// The result for each ASCII character; kRemoved if it is removed.
  std::array<unsigned char, 128> ascii_{};
};

/// Creates the normalizer of a file's field "normalizer". Throws DataError if it is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Node& node);

/// The normalized text; the text itself if `normalizer` is null.
std::string normalized(const Normalizer* normalizer, std::string_view text);

}  // namespace lockstep::tokenizer
