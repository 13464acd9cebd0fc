#include "tokenizers/normalizer.hpp"

#include <algorithm>
#include <functional>

#include "tokenizers/bert_normalizer.hpp"
#include "tokenizers/byte_alphabet.hpp"
#include "tokenizers/pattern.hpp"
#include "tokenizers/precompiled.hpp"
#include "tokenizers/unicode.hpp"
#include "tokenizers/unicode_normalization.hpp"

namespace lockstep::tokenizer {
namespace {

Character with_code(Character character, char32_t code) {
  character.code = code;
  return character;
}

/// A normalizer that is a single function.
class Step final : public Normalizer {
 public:
  using Function = std::function<void(Characters&)>;
  explicit Step(Function function) : function_(std::move(function)) {}
  void apply(Characters& text, std::uint32_t) const override { function_(text); }

 private:
  Function function_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(Characters& text, std::uint32_t first) const override {
    for (const auto& part : parts_) part->apply(text, first);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

void strip_accents(Characters& text) { remove(text, kIsCombiningMark); }

/// SentencePiece's rules for machine translation: removes control characters, and replaces white space by
/// spaces.
void nmt(Characters& text) {
  const auto is_control = [](const Character& character) {
    const auto code = character.code;
    return (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
           code == 0x8F || code == 0x9F;
  };
  const auto is_blank = [](char32_t code) {
    return code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
           code == 0xFEFF || code == 0xFFFD;
  };
  std::erase_if(text, is_control);
  for (auto& character : text) {
    if (is_blank(character.code)) character.code = U' ';
  }
}

/// Writes the bytes of the text as visible characters.
void show_bytes(Characters& text) {
  Characters result;
  result.reserve(text.size());
  std::string bytes;
  for (const auto& character : text) {
    bytes.clear();
    append_utf8(bytes, character.code);
    for (const char byte : bytes)
      result.push_back(with_code(character, byte_characters()[static_cast<unsigned char>(byte)]));
  }
  text = std::move(result);
}

std::u32string code_points(std::string_view text) {
  std::u32string codes;
  for (std::size_t position = 0; position < text.size();) codes += next_character(text, position);
  return codes;
}

/// Prepends a text to a nonempty one; its source is that of the first character.
Step::Function prepend(std::string_view prefix) {
  return [codes = code_points(prefix)](Characters& text) {
    if (text.empty()) return;
    Characters added;
    for (const auto code : codes) added.push_back(with_code(text.front(), code));
    text.insert(text.begin(), added.begin(), added.end());
  };
}

/// Strips white space at the ends.
Step::Function strip(bool left, bool right) {
  return [=](Characters& text) {
    const auto is_text = [](const Character& character) {
      return !Unicode::get().is(character.code, kIsSpace);
    };
    if (right) text.erase(std::find_if(text.rbegin(), text.rend(), is_text).base(), text.end());
    if (left) text.erase(text.begin(), std::find_if(text.begin(), text.end(), is_text));
  };
}

/// Replaces the matches of a pattern by a text, whose source is that of the last matched character.
class Replace final : public Normalizer {
 public:
  explicit Replace(const Node& node)
      : pattern_(node["pattern"]), codes_(code_points(node["content"].text())) {
    const auto literal = node["pattern"].find("String");
    const auto wanted = code_points(literal ? literal->text() : "");
    if (wanted.size() == 1 && codes_.size() == 1) single_ = wanted[0];
  }

  void apply(Characters& text, std::uint32_t first) const override {
    if (single_ != 0) {
      for (auto& character : text) character.code = character.code == single_ ? codes_[0] : character.code;
      return;
    }
    std::string bytes;
    std::vector<std::uint32_t> positions;
    for (const auto& character : text) {
      positions.push_back(static_cast<std::uint32_t>(bytes.size()));
      append_utf8(bytes, character.code);
    }
    ByteRanges matches;
    pattern_.find_all(bytes, matches);
    if (!matches.empty()) replace(text, first, positions, matches);
  }

 private:
  /// `positions` are the characters' first bytes. The source of text inserted at the beginning is the empty
  /// range before the given text, even if an earlier normalizer removed its first characters.
  void replace(Characters& text, std::uint32_t first, const std::vector<std::uint32_t>& positions,
               const ByteRanges& matches) const {
    Characters result;
    std::size_t position = 0;
    const auto before = [&](std::uint32_t byte) {
      return position < text.size() && positions[position] < byte;
    };
    for (const auto& match : matches) {
      while (before(match.begin)) result.push_back(text[position++]);
      while (before(match.end)) ++position;
      const auto source = position > 0 ? text[position - 1] : Character{0, first, first};
      for (const auto code : codes_) result.push_back(with_code(source, code));
    }
    result.insert(result.end(), text.begin() + static_cast<std::ptrdiff_t>(position), text.end());
    text = std::move(result);
  }

  Pattern pattern_;
  std::u32string codes_;
  /// The single character that is replaced by another one, or 0: the case of most files.
  char32_t single_ = 0;
};

std::unique_ptr<const Normalizer> make_bert(const Node& node) {
  const bool lowercase = node.flag("lowercase", true);
  return std::make_unique<BertNormalizer>(
      BertNormalizer::Settings{.clean_text = node.flag("clean_text", true),
                               .handle_chinese_chars = node.flag("handle_chinese_chars", true),
                               .strip_accents = node.flag("strip_accents", lowercase),
                               .lowercase = lowercase});
}

std::unique_ptr<const Normalizer> make_sequence(const Node& node) {
  std::vector<std::unique_ptr<const Normalizer>> parts;
  for (const auto& part : node["normalizers"].elements()) parts.push_back(make_normalizer(part));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

void remove(Characters& text, Property property) {
  const auto& unicode = Unicode::get();
  std::erase_if(text, [&](const Character& character) { return unicode.is(character.code, property); });
}

void blank_spaces(Characters& text) {
  const auto& unicode = Unicode::get();
  for (auto& character : text) {
    if (unicode.is(character.code, kIsSpace)) character.code = U' ';
  }
}

void set_apart(Characters& text, Property property) {
  const auto& unicode = Unicode::get();
  Characters result;
  result.reserve(text.size());
  for (const auto& character : text) {
    const bool apart = unicode.is(character.code, property);
    if (apart) result.push_back(with_code(character, U' '));
    result.push_back(character);
    if (apart) result.push_back(with_code(character, U' '));
  }
  text = std::move(result);
}

void lower(Characters& text) {
  const auto& unicode = Unicode::get();
  Characters result;
  result.reserve(text.size());
  for (const auto& character : text) {
    if (!unicode.is(character.code, kHasLowerCase)) {
      result.push_back(character);
      continue;
    }
    const auto lowered = unicode.lower_case(character.code);
    result.push_back(with_code(character, lowered.first));
    if (lowered.second != 0) result.push_back(with_code(character, lowered.second));
  }
  text = std::move(result);
}

void Normalizer::normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const {
  Characters characters;
  characters.reserve(text.size());
  std::uint32_t number = first;
  for (std::size_t position = 0; position < text.size(); ++number) {
    characters.push_back({next_character(text, position), number, number + 1});
  }
  apply(characters, first);
  result.clear();
  result.first = first;
  result.reserve(characters.size() + characters.size() / 4);
  for (const auto& character : characters) result.append(character.code, character.begin, character.end);
}

std::unique_ptr<const Normalizer> make_normalizer(const Node& node) {
  const auto& type = node.type();
  if (type == "BertNormalizer") return make_bert(node);
  if (type == "Sequence") return make_sequence(node);
  if (type == "ByteLevel") return std::make_unique<Step>(show_bytes);
  if (type == "Lowercase") return std::make_unique<Step>(lower);
  if (type == "NFC") return std::make_unique<Step>(compose);
  if (type == "NFD") return std::make_unique<Step>(decompose);
  if (type == "NFKC") return std::make_unique<Step>(compose_compatible);
  if (type == "NFKD") return std::make_unique<Step>(decompose_compatible);
  if (type == "Nmt") return std::make_unique<Step>(nmt);
  if (type == "Prepend") return std::make_unique<Step>(prepend(node["prepend"].text()));
  if (type == "Replace") return std::make_unique<Replace>(node);
  if (type == "Strip")
    return std::make_unique<Step>(strip(node.flag("strip_left", true), node.flag("strip_right", true)));
  if (type == "StripAccents") return std::make_unique<Step>(strip_accents);
  if (type == "Precompiled") return std::make_unique<Precompiled>(node);
  node.fail("the normalizer '" + type +
            "' is not supported (BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, "
            "Precompiled, Prepend, "
            "Replace, Sequence, Strip and StripAccents are)");
}

std::string normalized(const Normalizer* normalizer, std::string_view text) {
  if (normalizer == nullptr) return std::string(text);
  NormalizedString result;
  normalizer->normalize(text, 0, result);
  return result.text;
}

}  // namespace lockstep::tokenizer
