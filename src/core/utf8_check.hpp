#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep {

/// The number of bytes of the character at the beginning of `text`; 0 if it is not valid UTF-8 (RFC 3629): no
/// overlong forms, no surrogates, nothing above U+10FFFF.
inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0U;
  };
  const unsigned first = at(0);
  const auto follows = [&](std::size_t index) { return (at(index) & 0xC0U) == 0x80U; };
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

/// The position of the first byte that is not UTF-8; npos if there is none.
inline std::size_t first_not_utf8(std::string_view text) noexcept {
  // Most text is ASCII: eight characters at a time.
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  std::uint64_t eight = 0;
  for (std::size_t index = 0; index < text.size();) {
    if (text.size() - index >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + index, sizeof(eight));
      if ((eight & kHighBits) == 0) {
        index += sizeof(eight);
        continue;
      }
    }
    const auto length = utf8_length(text.substr(index));
    if (length == 0) return index;
    index += length;
  }
  return std::string_view::npos;
}

/// The text with each byte that is not UTF-8 written as `\xe9`, like Python's errors="backslashreplace":
/// names of files, hosts, columns and what other programs say may hold any bytes, JSON may not. Different
/// bytes stay different.
inline std::string utf8_text(std::string_view text) {
  std::string result;
  for (auto bad = first_not_utf8(text); bad != std::string_view::npos; bad = first_not_utf8(text)) {
    result += text.substr(0, bad);
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(text[bad]);
    result += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
    text.remove_prefix(bad + 1);
  }
  return result += text;
}

}  // namespace lockstep
