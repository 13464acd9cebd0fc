#pragma once

#include "normalized_string.hpp"

namespace lockstep::tokenizer {

/// Canonical decomposition (NFD) and composition (NFC), with what each character then stands for as the
/// Python package tells it.
void decompose(Characters& text);
void compose(Characters& text);

}  // namespace lockstep::tokenizer
