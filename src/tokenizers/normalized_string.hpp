#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {

/// A character of a text that is being normalized, and its source: a range of characters in the given text.
struct Character {
  char32_t code = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
using Characters = std::vector<Character>;

/// A piece of text that is being processed, and the source of its bytes in the given text.
struct Stretch {
  std::string_view text;
  /// For each byte the first character of its source; nullptr if byte i is character `first` + i.
  const std::uint32_t* begins = nullptr;
  /// For each byte the end of its source; nullptr if each source is a single character.
  const std::uint32_t* ends = nullptr;
  std::uint32_t first = 0;

  Offsets offsets(std::size_t begin, std::size_t end) const noexcept {
    const std::size_t last = end - 1;
    if (begins == nullptr) {
      return {first + static_cast<std::uint32_t>(begin), first + static_cast<std::uint32_t>(last) + 1};
    }
    return {begins[begin], ends == nullptr ? begins[last] + 1 : ends[last]};
  }
  Stretch part(std::size_t begin, std::size_t end) const noexcept {
    Stretch result = *this;
    result.text = text.substr(begin, end - begin);
    result.first += static_cast<std::uint32_t>(begin);
    if (begins != nullptr) result.begins += begin;
    if (ends != nullptr) result.ends += begin;
    return result;
  }
};

/// A normalized text that owns its bytes. Reused, so that it rarely allocates.
struct NormalizedString {
  std::string text;
  std::vector<std::uint32_t> begins;
  std::vector<std::uint32_t> ends;
  std::uint32_t first = 0;
  /// Each byte is one character of the given text: `begins` and `ends` are unused.
  bool plain = false;

  void clear() {
    text.clear();
    begins.clear();
    ends.clear();
    plain = false;
  }
  void append(char32_t code, std::uint32_t begin, std::uint32_t end) {
    if (code < 0x80) {
      text.push_back(static_cast<char>(code));
      begins.push_back(begin);
      return ends.push_back(end);
    }
    const auto bytes = append_utf8(text, code);
    begins.insert(begins.end(), bytes, begin);
    ends.insert(ends.end(), bytes, end);
  }
  void append(char32_t code, const Offsets& offsets) { append(code, offsets.begin, offsets.end); }
  void reserve(std::size_t bytes) {
    text.reserve(bytes);
    begins.reserve(bytes);
    ends.reserve(bytes);
  }
  /// Appends text unchanged, with its source.
  void append(const Stretch& part) {
    const auto count = part.text.size();
    const auto before = text.size();
    text += part.text;
    begins.resize(text.size());
    ends.resize(text.size());
    for (std::size_t byte = 0; byte < count; ++byte) {
      const auto begin =
          part.begins == nullptr ? part.first + static_cast<std::uint32_t>(byte) : part.begins[byte];
      begins[before + byte] = begin;
      ends[before + byte] = part.ends == nullptr ? begin + 1 : part.ends[byte];
    }
  }
  Stretch stretch() const {
    return {.text = text,
            .begins = plain ? nullptr : begins.data(),
            .ends = plain ? nullptr : ends.data(),
            .first = first};
  }
};

}  // namespace lockstep::tokenizer
