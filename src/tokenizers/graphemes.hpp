#pragma once

#include "tokenizers/normalized_string.hpp"

namespace lockstep::tokenizer {

/// The end of the grapheme cluster that begins at `position` (Unicode Standard Annex 29, extended clusters).
std::size_t grapheme_end(const Characters& text, std::size_t position);

}  // namespace lockstep::tokenizer
