#include "unicode_normalization.hpp"

#include <algorithm>

#include "unicode.hpp"

namespace lockstep::tokenizer {
namespace {

/// A character of the result, and how many more characters there are by it: 1 for one that has been added
/// behind another, -n for one that took in n others.
struct Piece {
  char32_t code;
  int change;
  std::uint8_t combining_class;
};
using Pieces = std::vector<Piece>;

void append_parts(Pieces& pieces, char32_t code, bool is_first) {
  const auto& unicode = Unicode::get();
  if (!unicode.is(code, kDecomposes)) {
    pieces.push_back({code, is_first ? 0 : 1, unicode.combining_class(code)});
    return;
  }
  const auto parts = unicode.decomposition(code);
  append_parts(pieces, parts.first, is_first);
  if (parts.second != 0) append_parts(pieces, parts.second, false);
}

/// Marks between two characters that are none, in the order of their classes.
void order_marks(Pieces& pieces) {
  const auto is_mark = [](const Piece& piece) { return piece.combining_class != 0; };
  const auto before = [](const Piece& a, const Piece& b) { return a.combining_class < b.combining_class; };
  for (auto place = pieces.begin(); place != pieces.end();) {
    const auto begin = std::find_if(place, pieces.end(), is_mark);
    const auto end = std::find_if_not(begin, pieces.end(), is_mark);
    std::stable_sort(begin, end, before);
    place = end;
  }
}

Pieces decomposed(const Characters& text) {
  Pieces pieces;
  pieces.reserve(text.size() + text.size() / 8);
  for (const auto& character : text) append_parts(pieces, character.code, true);
  order_marks(pieces);
  return pieces;
}

/// Puts a character and what follows it together as far as composites go.
class Composer {
 public:
  Pieces run(const Pieces& pieces) {
    for (const auto& piece : pieces) add(piece);
    flush();
    return std::move(result_);
  }

 private:
  void add(const Piece& piece) {
    if (!has_base_) {
      begin(piece);
    } else if (!is_blocked(piece) && join(piece)) {
      return;
    } else if (piece.combining_class == 0) {
      flush();
      begin(piece);
    } else {
      marks_.push_back(piece);
    }
  }

  void begin(const Piece& piece) {
    has_base_ = piece.combining_class == 0;
    if (has_base_) {
      base_ = piece;
    } else {
      result_.push_back(piece);
    }
  }

  bool is_blocked(const Piece& piece) const {
    return !marks_.empty() && marks_.back().combining_class >= piece.combining_class;
  }

  bool join(const Piece& piece) {
    const auto composed = Unicode::get().composition(base_.code, piece.code);
    if (composed == 0) return false;
    base_.code = composed;
    base_.change += piece.change - 1;
    return true;
  }

  void flush() {
    if (has_base_) result_.push_back(base_);
    result_.insert(result_.end(), marks_.begin(), marks_.end());
    marks_.clear();
    has_base_ = false;
  }

  Pieces result_;
  Pieces marks_;
  Piece base_{};
  bool has_base_ = false;
};

/// Hands out what the characters stood for. A character that was added stands for what the one before it
/// does; the count goes on in the order of the result, also where marks have changed places: so does the
/// Python package.
void realign(Characters& text, const Pieces& pieces) {
  Characters result;
  result.reserve(pieces.size());
  std::size_t place = 0;
  for (const auto& piece : pieces) {
    const std::size_t from = piece.change > 0 && place > 0 ? place - 1 : place;
    const auto& source = text[std::min(from, text.size() - 1)];
    result.push_back({piece.code, source.begin, source.end});
    if (piece.change <= 0) place += 1 + static_cast<std::size_t>(-piece.change);
  }
  text = std::move(result);
}

}  // namespace

void decompose(Characters& text) {
  if (!text.empty()) realign(text, decomposed(text));
}

void compose(Characters& text) {
  if (!text.empty()) realign(text, Composer().run(decomposed(text)));
}

}  // namespace lockstep::tokenizer
