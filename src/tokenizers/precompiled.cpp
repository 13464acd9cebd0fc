#include "tokenizers/precompiled.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "tokenizers/graphemes.hpp"
#include "tokenizers/unicode_normalization.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// Longer grapheme clusters (in bytes) are replaced character by character: SentencePiece has no longer keys.
constexpr std::size_t kLongestKey = 5;

std::array<int, 256> base64_values() {
  std::array<int, 256> values;
  values.fill(-1);
  int value = 0;
  for (const char letter :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")) {
    values[static_cast<unsigned char>(letter)] = value++;
  }
  return values;
}

std::string decode_base64(const Node& node) {
  static const auto values = base64_values();
  std::string_view text = node.text();
  if (text.size() % 4 != 0) node.fail("this is not base64: its length is not a multiple of 4");
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char letter : text) {
    const int value = values[static_cast<unsigned char>(letter)];
    if (value < 0) node.fail("this is not base64: it has a character that is not base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFFU);
  }
  return bytes;
}

// A unit of the array (darts-clone): bits 0 to 7 and 31 are its label, bit 8 tells that it has a value, and
// the rest is the offset of its children.
std::uint32_t label(std::uint32_t unit) { return unit & (1U << 31 | 0xFFU); }
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1U) != 0; }
std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & (1U << 9)) >> 6); }
std::uint32_t value(std::uint32_t unit) { return unit & ((1U << 31) - 1); }

/// Replaces some characters by a text.
void replace(Pieces& pieces, std::size_t replaced, std::string_view text) {
  const auto before = pieces.size();
  for (std::size_t position = 0; position < text.size();)
    pieces.push_back({next_character(text, position), 0, 0});
  const auto count = pieces.size() - before;
  for (auto index = before + std::min(count, replaced); index < pieces.size(); ++index)
    pieces[index].change = 1;
  // Characters removed without replacement are attributed to the character before them, if there is one.
  if (count < replaced && !pieces.empty()) pieces.back().change -= static_cast<int>(replaced - count);
}

}  // namespace

Precompiled::Precompiled(const Node& node) : location_(node.location()) {
  const auto map = node["precompiled_charsmap"];
  const auto bytes = decode_base64(map);
  std::uint32_t size = 0;
  if (bytes.size() < sizeof size) map.fail("the table is truncated");
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size > bytes.size() - sizeof size) {
    map.fail(fmt::format("a trie of {} bytes cannot be in a table of {}", size, bytes.size()));
  }
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof size, size);
  blob_ = bytes.substr(sizeof size + size);
  if (check_utf8(blob_).valid != blob_.size()) map.fail("the texts of the table are not valid UTF-8");
}

std::string_view Precompiled::text_at(std::size_t position) const {
  if (position > blob_.size() || (position < blob_.size() && is_tail(blob_[position]))) {
    throw DataError(
        fmt::format("The precompiled_charsmap of {} is damaged: its trie points to byte {} of its texts, "
                    "which is not the beginning of one.",
                    location_, position));
  }
  const auto rest = std::string_view(blob_).substr(position);
  return rest.substr(0, rest.find('\0'));
}

std::optional<std::string_view> Precompiled::replacement(std::string_view bytes) const {
  std::size_t node = offset(units_[0]);
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return std::nullopt;
    const bool found = has_leaf(units_[node]);
    node ^= offset(units_[node]);
    if (found && node < units_.size()) return text_at(value(units_[node]));
  }
  return std::nullopt;
}

void Precompiled::apply(Characters& text, std::uint32_t) const {
  Pieces pieces;
  pieces.reserve(text.size());
  bool is_changed = false;
  std::string bytes;
  for (std::size_t position = 0; position < text.size();) {
    const auto end = grapheme_end(text, position);
    bytes.clear();
    for (auto at = position; at < end && bytes.size() <= kLongestKey; ++at) append_utf8(bytes, text[at].code);
    if (end - position > 1 && bytes.size() <= kLongestKey) {
      if (const auto whole = replacement(bytes)) {
        replace(pieces, end - position, *whole);
        is_changed = true;
        position = end;
      }
    }
    for (; position < end; ++position) {
      bytes.clear();
      append_utf8(bytes, text[position].code);
      if (const auto one = replacement(bytes)) {
        replace(pieces, 1, *one);
        is_changed = true;
      } else {
        pieces.push_back({text[position].code, 0, 0});
      }
    }
  }
  if (is_changed) realign(text, pieces);
}

}  // namespace lockstep::tokenizer
