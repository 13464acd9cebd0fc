#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "json_file.hpp"
#include "normalized_string.hpp"
#include "unicode.hpp"

namespace lockstep::tokenizer {

// Steps that normalizers are made of. A character that is put in or that becomes two stands for what its
// source stood for.

/// Takes out the characters with the property.
void remove(Characters& text, Property property);
/// Makes a blank of every kind of white space.
void blank_spaces(Characters& text);
/// Puts a blank before and behind each character with the property.
void set_apart(Characters& text, Property property);
/// Lower case, character by character.
void lower(Characters& text);

/// Changes text before it is split: case, accents, normal forms. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  /// Changes a text whose first character had the number `first`.
  virtual void apply(Characters& text, std::uint32_t first) const = 0;

  /// Sets `result` to the normalized form of a valid text whose first character has the number `first`.
  virtual void normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const;
};

/// BERT's cleaning of text: see BertOptions.
class BertNormalizer final : public Normalizer {
 public:
  struct Settings {
    bool clean_text;
    bool handle_chinese_chars;
    bool strip_accents;
    bool lowercase;
  };
  explicit BertNormalizer(const Settings& settings);

  /// Step by step, as the Python package does it.
  void apply(Characters& text, std::uint32_t first) const override;
  /// The same in one pass, unless the text has marks that may change places.
  void normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const override;

 private:
  bool normalize_ascii(std::string_view text, NormalizedString& result) const;
  bool append(char32_t code, std::uint32_t number, NormalizedString& result) const;
  bool append_parts(char32_t code, std::uint32_t number, NormalizedString& result) const;
  void append_lower(char32_t code, std::uint32_t number, NormalizedString& result) const;

  Settings settings_;
  /// What each ASCII character becomes; kRemoved for nothing.
  std::array<unsigned char, 128> ascii_{};
};

/// The normalizer that a file's field "normalizer" describes. Throws DataError for one that is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Node& node);

/// The normal form of a text alone.
std::string normalized(const Normalizer* normalizer, std::string_view text);

}  // namespace lockstep::tokenizer
