#pragma once

#include "normalized_string.hpp"

namespace lockstep::tokenizer {

/// A character of a result, and how many more characters there are by it: 1 for one that has been added
/// behind another, -n for one that took in n others.
struct Piece {
  char32_t code;
  int change;
  std::uint8_t combining_class;
};
using Pieces = std::vector<Piece>;

/// Makes the text the pieces and hands out what its characters stood for. A character that was added stands
/// for what the one before it does; the count goes on in the order of the result, also where marks have
/// changed places: so does the Python package.
void realign(Characters& text, const Pieces& pieces);

/// Canonical decomposition (NFD) and composition (NFC), with what each character then stands for as the
/// Python package tells it.
void decompose(Characters& text);
void compose(Characters& text);
/// The same with compatibility decompositions (NFKD, NFKC): ligatures, full-width letters and the like go.
void decompose_compatible(Characters& text);
void compose_compatible(Characters& text);

}  // namespace lockstep::tokenizer
