#include "splitters.hpp"

#include "unicode.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// What a splitter sees in a character.
enum class Kind : unsigned char { inside, space, alone, other };

/// The kinds of the ASCII characters, and the rule for the others.
template <Kind (*classify)(std::uint16_t)>
class Kinds {
 public:
  Kinds() {
    for (char32_t code = 0; code < 128; ++code) ascii_[code] = classify(Unicode::get().properties(code));
  }
  /// The kind of the character at `place`, which moves behind it.
  Kind next(std::string_view text, std::size_t& place) const {
    if (is_ascii(text[place])) return ascii_[static_cast<unsigned char>(text[place++])];
    return classify(Unicode::get().properties(next_character(text, place)));
  }

 private:
  std::array<Kind, 128> ascii_{};
};

Kind bert_kind(std::uint16_t properties) {
  if ((properties & kIsSpace) != 0) return Kind::space;
  return (properties & kIsBertPunctuation) != 0 ? Kind::alone : Kind::inside;
}

Kind word_kind(std::uint16_t properties) {
  if ((properties & kIsWord) != 0) return Kind::inside;
  return (properties & kIsSpace) != 0 ? Kind::space : Kind::other;
}

Kind space_kind(std::uint16_t properties) {
  return (properties & kIsSpace) != 0 ? Kind::space : Kind::inside;
}

/// Neighbours of one kind are a word; `alone` is one by itself, and `space` none.
template <Kind (*classify)(std::uint16_t)>
void split_by_kind(std::string_view text, Words& words) {
  static const Kinds<classify> kinds;
  auto current = Kind::space;
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (current != Kind::space)
      words.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  };
  for (std::size_t place = 0; place < text.size();) {
    const auto at = place;
    const auto kind = kinds.next(text, place);
    if (kind == current && kind != Kind::alone) continue;
    finish(at);
    current = kind;
    begin = at;
  }
  finish(text.size());
}

}  // namespace

void split_bert(std::string_view text, Words& words) { split_by_kind<bert_kind>(text, words); }

void split_words(std::string_view text, Words& words) { split_by_kind<word_kind>(text, words); }

void split_spaces(std::string_view text, Words& words) { split_by_kind<space_kind>(text, words); }

}  // namespace lockstep::tokenizer
