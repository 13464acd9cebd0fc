#include "json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/utf8_check.hpp"

namespace lockstep::json_text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void escaped(std::string& text, unsigned char byte) {
  switch (byte) {
    case '"':
      text += "\\\"";
      return;
    case '\\':
      text += "\\\\";
      return;
    case '\n':
      text += "\\n";
      return;
    case '\r':
      text += "\\r";
      return;
    case '\t':
      text += "\\t";
      return;
    case '\b':
      text += "\\b";
      return;
    case '\f':
      text += "\\f";
      return;
    default:
      break;
  }
  char code[8];
  std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(byte));
  text += code;
}

bool is_plain(unsigned char byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

/// One character from `place` on; the number of bytes that it took.
std::size_t character(std::string& text, std::string_view value, std::size_t place) {
  const auto byte = static_cast<unsigned char>(value[place]);
  if (byte < 0x80) {
    escaped(text, byte);
    return 1;
  }
  const auto length = utf8_length(value.substr(place));
  text += length == 0 ? kReplacement : value.substr(place, length);
  return length == 0 ? 1 : length;
}

}  // namespace

void string(std::string& text, std::string_view value) {
  text += '"';
  for (std::size_t place = 0; place < value.size();) {
    auto end = place;
    while (end < value.size() && is_plain(static_cast<unsigned char>(value[end]))) ++end;
    text += value.substr(place, end - place);
    place = end;
    if (place < value.size()) place += character(text, value, place);
  }
  text += '"';
}

void number(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "Infinity" : "-Infinity";
  } else {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    const std::string_view shown(digits.data(), static_cast<std::size_t>(end - digits.data()));
    text += shown;
    if (shown.find_first_of(".e") == std::string_view::npos) text += ".0";
  }
}

void base64(std::string& text, std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  text += '"';
  for (std::size_t place = 0; place < bytes.size(); place += 3) {
    const auto count = std::min<std::size_t>(3, bytes.size() - place);
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[place + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  text += '"';
}

}  // namespace lockstep::json_text
