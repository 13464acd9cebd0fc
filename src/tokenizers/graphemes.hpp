#pragma once

#include "normalized_string.hpp"

namespace lockstep::tokenizer {

/// Where the grapheme cluster that begins at `place` ends (Unicode's annex 29, extended clusters).
std::size_t grapheme_end(const Characters& text, std::size_t place);

}  // namespace lockstep::tokenizer
