#include "tokenizers/bert_normalizer.hpp"

#include "tokenizers/unicode.hpp"
#include "tokenizers/unicode_normalization.hpp"

namespace lockstep::tokenizer {
namespace {

/// A value that no ASCII character is normalized to.
constexpr unsigned char kRemoved = 0xFF;

}  // namespace

BertNormalizer::BertNormalizer(const Settings& settings) : settings_(settings) {
  for (unsigned char code = 0; code < ascii_.size(); ++code) {
    Characters text{{code, 0, 1}};
    apply(text, 0);
    ascii_[code] = text.empty() ? kRemoved : static_cast<unsigned char>(text[0].code);
  }
}

void BertNormalizer::apply(Characters& text, std::uint32_t) const {
  if (settings_.clean_text) {
    remove(text, kIsBertControl);
    blank_spaces(text);
  }
  if (settings_.handle_chinese_chars) set_apart(text, kIsBertIdeograph);
  if (settings_.strip_accents) {
    decompose(text);
    remove(text, kIsBertAccent);
  }
  if (settings_.lowercase) lower(text);
}

void BertNormalizer::normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const {
  result.clear();
  result.first = first;
  if (normalize_ascii(text, result)) return;
  result.clear();
  std::uint32_t number = first;
  for (std::size_t position = 0; position < text.size(); ++number) {
    if (!append(next_character(text, position), number, result))
      return Normalizer::normalize(text, first, result);
  }
}

/// The most frequent case: every byte becomes one byte.
bool BertNormalizer::normalize_ascii(std::string_view text, NormalizedString& result) const {
  result.text.resize(text.size());
  for (std::size_t position = 0; position < text.size(); ++position) {
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte >= ascii_.size() || ascii_[byte] == kRemoved) return false;
    result.text[position] = static_cast<char>(ascii_[byte]);
  }
  result.plain = true;
  return true;
}

/// False if the text needs the step-by-step normalization.
bool BertNormalizer::append(char32_t code, std::uint32_t number, NormalizedString& result) const {
  if (code < ascii_.size()) {
    if (ascii_[code] != kRemoved) result.append(ascii_[code], number, number + 1);
    return true;
  }
  const auto properties = Unicode::get().properties(code);
  if (settings_.clean_text && (properties & kIsBertControl) != 0) return true;
  if (settings_.clean_text && (properties & kIsSpace) != 0) {
    result.append(U' ', number, number + 1);
    return true;
  }
  const bool apart = settings_.handle_chinese_chars && (properties & kIsBertIdeograph) != 0;
  if (apart) result.append(U' ', number, number + 1);
  const bool done = append_parts(code, number, result);
  if (apart) result.append(U' ', number, number + 1);
  return done;
}

bool BertNormalizer::append_parts(char32_t code, std::uint32_t number, NormalizedString& result) const {
  const auto& unicode = Unicode::get();
  const auto properties = unicode.properties(code);
  if (settings_.strip_accents && (properties & kDecomposes) != 0) {
    const auto parts = unicode.decomposition(code);
    return append_parts(parts.first, number, result) &&
           (parts.second == 0 || append_parts(parts.second, number, result));
  }
  if (settings_.strip_accents && (properties & kIsBertAccent) != 0) return true;
  if (settings_.strip_accents && (properties & kIsOrdered) != 0) return false;
  append_lower(code, number, result);
  return true;
}

void BertNormalizer::append_lower(char32_t code, std::uint32_t number, NormalizedString& result) const {
  if (!settings_.lowercase || !Unicode::get().is(code, kHasLowerCase)) {
    return result.append(code, number, number + 1);
  }
  const auto lowered = Unicode::get().lower_case(code);
  result.append(lowered.first, number, number + 1);
  if (lowered.second != 0) result.append(lowered.second, number, number + 1);
}

}  // namespace lockstep::tokenizer
