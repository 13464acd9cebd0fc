#include "tokenizers/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

/// The number of bytes that one U+FFFD stands for, at the beginning of text that is ill-formed there: those
/// of a sequence that only lacks its end, or one.
std::size_t ill_formed_length(std::string_view text) {
  for (const std::size_t length : {3, 2}) {
    if (length > text.size()) continue;
    if (utf8_length(std::string(text.substr(0, length)) + "\x80\x80") > length) return length;
  }
  return 1;
}

/// The number of ASCII bytes at `position`, in steps of eight.
std::size_t ascii_run(std::string_view text, std::size_t position) noexcept {
  const std::size_t begin = position;
  for (; position + 8 <= text.size(); position += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + position, sizeof bytes);
    if ((bytes & 0x8080808080808080ULL) != 0) break;
  }
  return position - begin;
}

}  // namespace

Utf8Check check_utf8(std::string_view text) noexcept {
  Utf8Check check;
  while (check.valid < text.size()) {
    const auto run = ascii_run(text, check.valid);
    check.valid += run;
    check.characters += run;
    if (check.valid == text.size()) break;
    const auto length = utf8_length(text.substr(check.valid));
    if (length == 0) break;
    check.valid += length;
    ++check.characters;
  }
  return check;
}

std::string repaired_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto valid = check_utf8(bytes).valid;
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(ill_formed_length(bytes));
  }
  return text;
}

std::size_t require_utf8(std::string_view text, std::string_view what) {
  const auto check = check_utf8(text);
  if (check.valid == text.size()) return check.characters;
  throw DataError(
      fmt::format("{} is not valid UTF-8: its byte {} does not begin a character. Convert it to UTF-8 first.",
                  what, check.valid));
}

}  // namespace lockstep::tokenizer
