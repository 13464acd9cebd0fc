#include "tokenizers/unicode_normalization.hpp"

#include <algorithm>

#include "tokenizers/unicode.hpp"

namespace lockstep::tokenizer {
namespace {

/// Which decompositions are applied: only canonical ones, or also compatibility ones, which lose information.
enum class Form { canonical, compatible };

template <Form form>
void append_parts(Pieces& pieces, char32_t code, bool is_first) {
  const auto& unicode = Unicode::get();
  if (form == Form::compatible) {
    if (const auto parts = unicode.compatibility(code); !parts.empty()) {
      for (const auto part : parts) {
        pieces.push_back({part, is_first ? 0 : 1, unicode.combining_class(part)});
        is_first = false;
      }
      return;
    }
  }
  if (!unicode.is(code, kDecomposes)) {
    pieces.push_back({code, is_first ? 0 : 1, unicode.combining_class(code)});
    return;
  }
  const auto parts = unicode.decomposition(code);
  append_parts<form>(pieces, parts.first, is_first);
  if (parts.second != 0) append_parts<form>(pieces, parts.second, false);
}

/// Sorts each run of marks by combining class.
void order_marks(Pieces& pieces) {
  const auto is_mark = [](const Piece& piece) { return piece.combining_class != 0; };
  const auto before = [](const Piece& a, const Piece& b) { return a.combining_class < b.combining_class; };
  for (auto position = pieces.begin(); position != pieces.end();) {
    const auto begin = std::find_if(position, pieces.end(), is_mark);
    const auto end = std::find_if_not(begin, pieces.end(), is_mark);
    std::stable_sort(begin, end, before);
    position = end;
  }
}

template <Form form>
Pieces decomposed(const Characters& text) {
  Pieces pieces;
  pieces.reserve(text.size() + text.size() / 8);
  for (const auto& character : text) append_parts<form>(pieces, character.code, true);
  order_marks(pieces);
  return pieces;
}

/// Composes characters with the ones that follow, as far as composites exist.
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

/// ASCII is the same in all normal forms.
bool is_plain(const Characters& text) {
  return std::all_of(text.begin(), text.end(),
                     [](const Character& character) { return character.code < 0x80; });
}

}  // namespace

void realign(Characters& text, const Pieces& pieces) {
  if (text.empty()) return;
  Characters result;
  result.reserve(pieces.size());
  std::size_t position = 0;
  for (const auto& piece : pieces) {
    const std::size_t from = piece.change > 0 && position > 0 ? position - 1 : position;
    const auto& source = text[std::min(from, text.size() - 1)];
    result.push_back({piece.code, source.begin, source.end});
    if (piece.change <= 0) position += 1 + static_cast<std::size_t>(-piece.change);
  }
  text = std::move(result);
}

void decompose(Characters& text) {
  if (!is_plain(text)) realign(text, decomposed<Form::canonical>(text));
}

void compose(Characters& text) {
  if (!is_plain(text)) realign(text, Composer().run(decomposed<Form::canonical>(text)));
}

void decompose_compatible(Characters& text) {
  if (!is_plain(text)) realign(text, decomposed<Form::compatible>(text));
}

void compose_compatible(Characters& text) {
  if (!is_plain(text)) realign(text, Composer().run(decomposed<Form::compatible>(text)));
}

}  // namespace lockstep::tokenizer
