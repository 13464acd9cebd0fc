#include "tokenizers/jinja/string_literal.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <optional>

#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

constexpr std::string_view kEscapes = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

/// Exactly `count` hexadecimal digits.
std::optional<std::uint32_t> hexadecimal(std::string_view digits, std::size_t count) {
  if (digits.size() < count) return std::nullopt;
  std::uint32_t number = 0;
  for (const char digit : digits.substr(0, count)) {
    const auto lower = static_cast<char>(digit | 0x20);
    const bool is_digit = digit >= '0' && digit <= '9';
    if (!is_digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    number = number * 16 + static_cast<std::uint32_t>(is_digit ? digit - '0' : lower - 'a' + 10);
  }
  return number;
}

}  // namespace

StringLiteral read_string_literal(std::string_view literal) {
  StringLiteral read;
  for (std::size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\' || i + 1 >= literal.size()) {
      read.text += literal[i++];
      continue;
    }
    const char escape = literal[i + 1];
    i += 2;
    if (const auto known = kEscapes.find(escape); known != std::string_view::npos) {
      read.text += kMeanings[known];
    } else if (escape == '\n') {
      continue;
    } else if (escape >= '0' && escape <= '7') {
      auto code = static_cast<std::uint32_t>(escape - '0');
      for (int more = 0; more < 2 && i < literal.size() && literal[i] >= '0' && literal[i] <= '7';
           ++more, ++i) {
        code = code * 8 + static_cast<std::uint32_t>(literal[i] - '0');
      }
      tokenizer::append_utf8(read.text, code);
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const std::size_t count = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      const auto code = hexadecimal(literal.substr(i), count);
      if (!code || *code > 0x10FFFF)
        return {.text = {}, .error = fmt::format("a string has a broken \\{} escape", escape)};
      if (*code >= 0xD800 && *code < 0xE000) {
        return {
            .text = {},
            .error = "a string has half a surrogate pair, which is no character: write \\U and eight digits"};
      }
      tokenizer::append_utf8(read.text, *code);
      i += count;
    } else if (escape == 'N') {
      return {.text = {},
              .error = "a string has a \\N escape, which is not supported: write the character itself"};
    } else {
      read.text += '\\';
      read.text += escape;
    }
  }
  return read;
}

}  // namespace lockstep::jinja
