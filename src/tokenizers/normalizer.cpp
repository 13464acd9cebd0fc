#include "normalizer.hpp"

#include "unicode.hpp"
#include "unicode_normalization.hpp"

namespace lockstep::tokenizer {
namespace {

Character with_code(Character character, char32_t code) {
  character.code = code;
  return character;
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

namespace {

/// No ASCII character becomes this.
constexpr unsigned char kRemoved = 0xFF;

}  // namespace

BertNormalizer::BertNormalizer(const Settings& settings) : settings_(settings) {
  for (unsigned char code = 0; code < ascii_.size(); ++code) {
    Characters text{{code, 0, 1}};
    apply(text);
    ascii_[code] = text.empty() ? kRemoved : static_cast<unsigned char>(text[0].code);
  }
}

void BertNormalizer::apply(Characters& text) const {
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
  for (std::size_t place = 0; place < text.size(); ++number) {
    if (!append(next_character(text, place), number, result))
      return Normalizer::normalize(text, first, result);
  }
}

/// The case that most text is: every byte becomes one byte.
bool BertNormalizer::normalize_ascii(std::string_view text, NormalizedString& result) const {
  result.text.resize(text.size());
  for (std::size_t place = 0; place < text.size(); ++place) {
    const auto byte = static_cast<unsigned char>(text[place]);
    if (byte >= ascii_.size() || ascii_[byte] == kRemoved) return false;
    result.text[place] = static_cast<char>(ascii_[byte]);
  }
  result.plain = true;
  return true;
}

/// False when the text has to be done step by step.
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

namespace {

/// A normalizer that is one function.
class Step final : public Normalizer {
 public:
  using Function = void (*)(Characters&);
  explicit Step(Function function) : function_(function) {}
  void apply(Characters& text) const override { function_(text); }

 private:
  Function function_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(Characters& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

void strip_accents(Characters& text) { remove(text, kIsCombiningMark); }

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

void Normalizer::normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const {
  Characters characters;
  characters.reserve(text.size());
  std::uint32_t number = first;
  for (std::size_t place = 0; place < text.size(); ++number) {
    characters.push_back({next_character(text, place), number, number + 1});
  }
  apply(characters);
  result.clear();
  result.first = first;
  for (const auto& character : characters) result.append(character.code, character.begin, character.end);
}

std::unique_ptr<const Normalizer> make_normalizer(const Node& node) {
  const auto& type = node.type();
  if (type == "BertNormalizer") return make_bert(node);
  if (type == "Sequence") return make_sequence(node);
  if (type == "Lowercase") return std::make_unique<Step>(lower);
  if (type == "NFC") return std::make_unique<Step>(compose);
  if (type == "NFD") return std::make_unique<Step>(decompose);
  if (type == "StripAccents") return std::make_unique<Step>(strip_accents);
  node.fail("the normalizer '" + type +
            "' is not supported (BertNormalizer, Lowercase, NFC, NFD, StripAccents and Sequence are)");
}

std::string normalized(const Normalizer* normalizer, std::string_view text) {
  if (normalizer == nullptr) return std::string(text);
  NormalizedString result;
  normalizer->normalize(text, 0, result);
  return result.text;
}

}  // namespace lockstep::tokenizer
