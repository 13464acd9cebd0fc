#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

/// How much of a text is valid.
struct Utf8Check {
  /// Length of the longest prefix of complete, valid sequences (RFC 3629).
  std::size_t valid = 0;
  /// Code points in that prefix.
  std::size_t characters = 0;
};

Utf8Check check_utf8(std::string_view text) noexcept;

/// Replaces every ill-formed part by U+FFFD: one per longest prefix of a sequence, like Python's
/// bytes.decode(errors="replace") and Rust's from_utf8_lossy.
std::string repaired_utf8(std::string_view bytes);

/// Returns the number of characters. Throws DataError, naming `what` and the byte, if the text is not valid
/// UTF-8.
std::size_t require_utf8(std::string_view text, std::string_view what);

inline constexpr bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }
/// A continuation byte.
inline constexpr bool is_tail(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// The length of the sequence that begins with this byte of valid text.
inline constexpr std::size_t sequence_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The character at `position` of valid text; `position` is advanced past it.
inline char32_t next_character(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t more) { return static_cast<unsigned char>(text[position + more]); };
  const std::size_t length = sequence_length(text[position]);
  char32_t code = byte(0);
  if (length == 2) code = (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU);
  if (length == 3) code = (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
  if (length == 4) {
    code = (byte(0) & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU);
  }
  position += length;
  return code;
}

/// The character that ends before `position`; `position` is moved to its beginning.
inline char32_t previous_character(std::string_view text, std::size_t& position) {
  do --position;
  while (is_tail(text[position]));
  std::size_t again = position;
  return next_character(text, again);
}

/// Appends the character's bytes; returns their number.
inline std::size_t append_utf8(std::string& text, char32_t code) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code), 1;
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F)), 2;
  if (code < 0x10000) {
    return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F)), 3;
  }
  put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
  return put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F)), 4;
}

}  // namespace lockstep::tokenizer
