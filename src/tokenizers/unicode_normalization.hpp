#pragma once

#include "tokenizers/normalized_string.hpp"

namespace lockstep::tokenizer {

/// A character of a result, and the change in the number of characters: 1 for one that was inserted after
/// another, -n for one that replaced n others in addition to its own.
struct Piece {
  char32_t code;
  int change;
  std::uint8_t combining_class;
};
using Pieces = std::vector<Piece>;

/// Replaces the text by the pieces and assigns sources to them. An inserted character has the source of the
/// one before it. Sources are assigned in the order of the result, even if marks were reordered, as in the
/// Python package.
void realign(Characters& text, const Pieces& pieces);

/// Canonical decomposition (NFD) and composition (NFC), with the same sources as in the Python package.
void decompose(Characters& text);
void compose(Characters& text);
/// The same with compatibility decompositions (NFKD, NFKC), which replace ligatures, full-width letters and
/// the like.
void decompose_compatible(Characters& text);
void compose_compatible(Characters& text);

}  // namespace lockstep::tokenizer
