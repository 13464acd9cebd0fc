#include "tokenizers/splitters.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "tokenizers/unicode.hpp"
#include "tokenizers/unicode_tables.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// How a splitter classifies a character.
enum class Kind : unsigned char { inside, space, alone, other };

/// The kinds of the ASCII characters, and the rule for all others.
template <Kind (*classify)(std::uint32_t)>
class Kinds {
 public:
  Kinds() {
    for (char32_t code = 0; code < 128; ++code) ascii_[code] = classify(Unicode::get().properties(code));
  }
  /// The kind of the character at `position`, which is advanced past it.
  Kind next(std::string_view text, std::size_t& position) const {
    if (is_ascii(text[position])) return ascii_[static_cast<unsigned char>(text[position++])];
    return classify(Unicode::get().properties(next_character(text, position)));
  }

 private:
  std::array<Kind, 128> ascii_{};
};

Kind bert_kind(std::uint32_t properties) {
  if ((properties & kIsSpace) != 0) return Kind::space;
  return (properties & kIsBertPunctuation) != 0 ? Kind::alone : Kind::inside;
}

Kind word_kind(std::uint32_t properties) {
  if ((properties & kIsWord) != 0) return Kind::inside;
  return (properties & kIsSpace) != 0 ? Kind::space : Kind::other;
}

Kind space_kind(std::uint32_t properties) {
  return (properties & kIsSpace) != 0 ? Kind::space : Kind::inside;
}

/// Adjacent characters of one kind form a word; `alone` is a word by itself, and `space` none.
template <Kind (*classify)(std::uint32_t)>
void split_by_kind(std::string_view text, Words& words) {
  static const Kinds<classify> kinds;
  auto current = Kind::space;
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (current != Kind::space)
      words.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  };
  for (std::size_t position = 0; position < text.size();) {
    const auto at = position;
    const auto kind = kinds.next(text, position);
    if (kind == current && kind != Kind::alone) continue;
    finish(at);
    current = kind;
    begin = at;
  }
  finish(text.size());
}

/// The script of a character; 0 for what joins every script.
unsigned script_of(char32_t code) {
  const auto row =
      std::upper_bound(kScripts.begin(), kScripts.end(), code,
                       [](char32_t value, const ClassRange& range) { return value < range.first; });
  return row == kScripts.begin() || std::prev(row)->last < code ? 0U : std::prev(row)->number;
}

}  // namespace

void split_bert(std::string_view text, Words& words) { split_by_kind<bert_kind>(text, words); }

void split_words(std::string_view text, Words& words) { split_by_kind<word_kind>(text, words); }

void split_spaces(std::string_view text, Words& words) { split_by_kind<space_kind>(text, words); }

/// As in the package, what comes before the first character of a script is in no word.
void split_scripts(std::string_view text, Words& words) {
  unsigned current = 0;
  const auto first = words.size();
  for (std::size_t position = 0; position < text.size();) {
    const auto begin = static_cast<std::uint32_t>(position);
    const auto script = script_of(next_character(text, position));
    if (script == 0 || script == current) continue;
    if (words.size() > first) words.back().end = begin;
    words.push_back({begin, static_cast<std::uint32_t>(text.size())});
    current = script;
  }
}

}  // namespace lockstep::tokenizer
