#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

// Byte-level vocabularies write each byte as a visible character: printable bytes as they are, and the
// others, in order, as the characters from U+0100.

/// The character of each byte.
const std::array<char32_t, 256>& byte_characters();

/// The bytes that a token represents; nothing if it contains another character.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace lockstep::tokenizer
