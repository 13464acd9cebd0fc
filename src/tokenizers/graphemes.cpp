#include "tokenizers/graphemes.hpp"

#include "tokenizers/unicode.hpp"

namespace lockstep::tokenizer {
namespace {

constexpr char32_t kJoiner = 0x200D;

bool is_regional(char32_t code) { return code >= 0x1F1E6 && code <= 0x1F1FF; }

/// Hangul syllables; an open one has no trailing consonant.
bool is_syllable(char32_t code) { return code >= 0xAC00 && code <= 0xD7A3; }
bool is_open(char32_t code) { return is_syllable(code) && (code - 0xAC00) % 28 == 0; }

bool joins_hangul(char32_t left, GraphemeClass left_class, char32_t right, GraphemeClass right_class) {
  if (left_class == GraphemeClass::lead) {
    return right_class == GraphemeClass::lead || right_class == GraphemeClass::vowel || is_syllable(right);
  }
  if (left_class == GraphemeClass::vowel || is_open(left)) {
    return right_class == GraphemeClass::vowel || right_class == GraphemeClass::tail;
  }
  return (left_class == GraphemeClass::tail || is_syllable(left)) && right_class == GraphemeClass::tail;
}

/// The state of a cluster, for rules that involve more than two characters.
class Cluster {
 public:
  Cluster(char32_t code, GraphemeClass kind) : code_(code), class_(kind) { note(code, kind); }

  bool takes(char32_t code, GraphemeClass kind) const {
    if (code_ == U'\r' && code == U'\n') return true;
    if (class_ == GraphemeClass::control || kind == GraphemeClass::control) return false;
    if (kind >= GraphemeClass::extend && kind <= GraphemeClass::spacing) return true;
    if (class_ == GraphemeClass::prepend) return true;
    if (kind == GraphemeClass::consonant && is_linked_) return true;
    if (kind == GraphemeClass::pictographic && is_joined_) return true;
    if (is_regional(code_) && is_regional(code)) return regional_ % 2 == 1;
    return joins_hangul(code_, class_, code, kind);
  }

  void add(char32_t code, GraphemeClass kind) {
    code_ = code;
    class_ = kind;
    note(code, kind);
  }

 private:
  void note(char32_t code, GraphemeClass kind) {
    regional_ = is_regional(code) ? regional_ + 1 : 0;
    is_joined_ = code == kJoiner && after_picture_;
    after_picture_ =
        kind == GraphemeClass::pictographic || (after_picture_ && code != kJoiner && is_extend(kind));
    if (kind == GraphemeClass::consonant) {
      after_consonant_ = true;
      is_linked_ = false;
    } else if (kind == GraphemeClass::linker && after_consonant_) {
      is_linked_ = true;
    } else if (kind != GraphemeClass::conjunct_extend) {
      after_consonant_ = is_linked_ = false;
    }
  }
  static bool is_extend(GraphemeClass kind) {
    return kind >= GraphemeClass::extend && kind <= GraphemeClass::linker;
  }

  char32_t code_;
  GraphemeClass class_;
  unsigned regional_ = 0;
  bool after_picture_ = false;
  bool is_joined_ = false;
  bool after_consonant_ = false;
  bool is_linked_ = false;
};

}  // namespace

std::size_t grapheme_end(const Characters& text, std::size_t position) {
  const auto& unicode = Unicode::get();
  const auto class_at = [&](std::size_t at) { return unicode.grapheme_class(text[at].code); };
  const auto kind = class_at(position);
  auto end = position + 1;
  if (end == text.size()) return end;
  const auto next = text[end].code;
  // Fast path for most text: no Hangul, Indic consonants or marks.
  if (kind == GraphemeClass::other && class_at(end) == GraphemeClass::other && next < 0xAC00) return end;
  Cluster cluster(text[position].code, kind);
  while (end < text.size() && cluster.takes(text[end].code, class_at(end))) {
    cluster.add(text[end].code, class_at(end));
    ++end;
  }
  return end;
}

}  // namespace lockstep::tokenizer
