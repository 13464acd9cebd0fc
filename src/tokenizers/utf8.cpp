#include "utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

struct Sequence {
  /// The number of its bytes that are present and valid.
  std::size_t length = 0;
  bool whole = false;
};

/// Whether the second byte of a sequence is valid after the first (RFC 3629, section 4).
bool may_follow(unsigned first, unsigned second) {
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

Sequence first_sequence(std::string_view text) noexcept {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const std::size_t length = sequence_length(text[0]);
  if (text.size() < 2 || !may_follow(first, static_cast<unsigned char>(text[1]))) return {1, false};
  for (std::size_t place = 2; place < length; ++place) {
    if (place >= text.size() || !is_tail(text[place])) return {place, false};
  }
  return {length, true};
}

/// The number of ASCII bytes at `place`, in steps of eight.
std::size_t ascii_run(std::string_view text, std::size_t place) noexcept {
  const std::size_t begin = place;
  for (; place + 8 <= text.size(); place += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + place, sizeof bytes);
    if ((bytes & 0x8080808080808080ULL) != 0) break;
  }
  return place - begin;
}

}  // namespace

Utf8Check check_utf8(std::string_view text) noexcept {
  Utf8Check check;
  while (check.valid < text.size()) {
    const auto run = ascii_run(text, check.valid);
    check.valid += run;
    check.characters += run;
    if (check.valid == text.size()) break;
    const auto sequence = first_sequence(text.substr(check.valid));
    if (!sequence.whole) break;
    check.valid += sequence.length;
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
    bytes.remove_prefix(first_sequence(bytes).length);
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
