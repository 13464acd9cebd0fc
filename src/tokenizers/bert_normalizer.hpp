#pragma once

#include <array>
#include <string_view>

#include "tokenizers/normalizer.hpp"

namespace lockstep::tokenizer {

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

}  // namespace lockstep::tokenizer
