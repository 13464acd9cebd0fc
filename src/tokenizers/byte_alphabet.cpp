#include "tokenizers/byte_alphabet.hpp"

#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

constexpr char32_t kHidden = 0x100;
constexpr int kNone = -1;

bool is_shown(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The byte of each character that represents one; all of these are below U+0144.
std::array<int, 0x144> character_bytes() {
  std::array<int, 0x144> bytes;
  bytes.fill(kNone);
  for (int byte = 0; byte < 256; ++byte) bytes[byte_characters()[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

}  // namespace

const std::array<char32_t, 256>& byte_characters() {
  static const auto characters = [] {
    std::array<char32_t, 256> result{};
    char32_t hidden = kHidden;
    for (unsigned byte = 0; byte < 256; ++byte) result[byte] = is_shown(byte) ? byte : hidden++;
    return result;
  }();
  return characters;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  static const auto bytes = character_bytes();
  std::string result;
  for (std::size_t position = 0; position < token.size();) {
    const auto code = next_character(token, position);
    if (code >= bytes.size() || bytes[code] == kNone) return std::nullopt;
    result.push_back(static_cast<char>(bytes[code]));
  }
  return result;
}

}  // namespace lockstep::tokenizer
