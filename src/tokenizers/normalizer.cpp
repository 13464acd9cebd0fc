#include "normalizer.hpp"

#include "bert_normalizer.hpp"
#include "normalizer_steps.hpp"
#include "unicode_normalization.hpp"

namespace lockstep::tokenizer {
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
