#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// How many bytes the character at the beginning of `text` takes; 0 when there is none that UTF-8 (RFC 3629)
/// allows: no overlong forms, no surrogates, nothing above U+10FFFF.
inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t place) {
    return place < text.size() ? static_cast<unsigned char>(text[place]) : 0U;
  };
  const unsigned first = at(0);
  const auto follows = [&](std::size_t place) { return (at(place) & 0xC0U) == 0x80U; };
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool second = first == 0xE0 ? at(1) >= 0xA0 : first != 0xED || at(1) < 0xA0;
    return second && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool second = first == 0xF0 ? at(1) >= 0x90 : first != 0xF4 || at(1) < 0x90;
    return second && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// The place of the first byte that is no UTF-8; npos when all is.
inline std::size_t first_not_utf8(std::string_view text) noexcept {
  for (std::size_t place = 0; place < text.size();) {
    const auto length = utf8_length(text.substr(place));
    if (length == 0) return place;
    place += length;
  }
  return std::string_view::npos;
}

}  // namespace lockstep
