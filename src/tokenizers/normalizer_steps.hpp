#pragma once

#include "normalized_string.hpp"
#include "unicode.hpp"

namespace lockstep::tokenizer {

// Steps that normalizers are made of. A character that is put in or that becomes two stands for what its
// source stood for.

/// Takes out the characters with the property.
void remove(Characters& text, Property property);
/// Makes a blank of every kind of white space.
void blank_spaces(Characters& text);
/// Puts a blank before and behind each character with the property.
void set_apart(Characters& text, Property property);
/// Lower case, character by character.
void lower(Characters& text);

}  // namespace lockstep::tokenizer
