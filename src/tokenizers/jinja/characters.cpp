#include "tokenizers/jinja/characters.hpp"

#include <algorithm>
#include <unordered_map>

#include "tokenizers/jinja/upper_case.hpp"
#include "tokenizers/unicode.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

using tokenizer::append_utf8;
using tokenizer::next_character;
using tokenizer::previous_character;
using tokenizer::Unicode;

template <class Strips>
std::string_view strip_if(std::string_view text, Ends ends, const Strips& strips) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (ends != Ends::right) {
    for (std::size_t position = 0; position < text.size();) {
      if (!strips(next_character(text, position))) break;
      begin = position;
    }
  }
  if (ends != Ends::left) {
    for (std::size_t position = end; position > begin;) {
      if (!strips(previous_character(text, position))) break;
      end = position;
    }
  }
  return text.substr(begin, end - begin);
}

void add_lower(std::string& lower, char32_t code) {
  const auto& unicode = Unicode::get();
  if (!unicode.is(code, tokenizer::kHasLowerCase)) {
    append_utf8(lower, code);
    return;
  }
  const auto pair = unicode.lower_case(code);
  append_utf8(lower, pair.first);
  if (pair.second != 0) append_utf8(lower, pair.second);
}

bool is_cased(char32_t code) {
  return Unicode::get().is(code, tokenizer::kHasLowerCase) || !upper_case_of(code).empty();
}

/// Whether the sigma before `position` ends a word, where its lower case has a form of its own.
bool ends_word(std::string_view text, std::size_t begin, std::size_t position) {
  const auto& unicode = Unicode::get();
  const auto skips = [&](char32_t code) {
    return code == U'\'' || code == U'.' || code == U':' || code == U'\u00AD' || code == U'\u2019' ||
           unicode.is(code, tokenizer::kIsMark);
  };
  bool before = false;
  for (auto at = begin; at > 0;) {
    const auto code = previous_character(text, at);
    if (skips(code)) continue;
    before = is_cased(code);
    break;
  }
  if (!before) return false;
  for (auto at = position; at < text.size();) {
    const auto code = next_character(text, at);
    if (!skips(code)) return !is_cased(code);
  }
  return true;
}

}  // namespace

bool is_space(char32_t code) {
  if (code < 0x80) return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  using namespace tokenizer;
  return (Unicode::get().properties(code) & (kIsLetter | kIsNumber | kIsMark | kIsSymbol)) != 0;
}

bool is_letter(char32_t code) { return Unicode::get().is(code, tokenizer::kIsLetter); }

bool is_digit(char32_t code) {
  return code < 0x80 ? code >= U'0' && code <= U'9' : Unicode::get().is(code, tokenizer::kIsDigit);
}

std::string_view strip_space(std::string_view text, Ends ends) {
  return strip_if(text, ends, [](char32_t code) { return is_space(code); });
}

std::string_view strip_characters(std::string_view text, std::string_view characters, Ends ends) {
  const auto all = characters_of(characters);
  return strip_if(text, ends, [&](char32_t code) { return all.find(code) != std::u32string::npos; });
}

std::size_t byte_of_character(std::string_view text, std::size_t character) {
  std::size_t position = 0;
  for (; character > 0 && position < text.size(); --character)
    position += tokenizer::sequence_length(text[position]);
  return position;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !tokenizer::is_tail(byte); }));
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (std::size_t position = 0; position < text.size();) characters += next_character(text, position);
  return characters;
}

std::string text_of_characters(std::u32string_view characters) {
  std::string text;
  for (const auto code : characters) append_utf8(text, code);
  return text;
}

std::string to_upper(std::string_view text) {
  std::string upper;
  for (std::size_t position = 0; position < text.size();) {
    const auto code = next_character(text, position);
    const auto own = upper_case_of(code);
    if (own.empty()) append_utf8(upper, code);
    for (const auto part : own) append_utf8(upper, part);
  }
  return upper;
}

std::string to_lower(std::string_view text) {
  std::string lower;
  for (std::size_t position = 0; position < text.size();) {
    const auto begin = position;
    const auto code = next_character(text, position);
    if (code == U'\u03A3' && ends_word(text, begin, position)) {
      append_utf8(lower, U'\u03C2');
    } else {
      add_lower(lower, code);
    }
  }
  return lower;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::size_t position = 0;
  const auto first = next_character(text, position);
  std::string capitalized;
  const auto title = title_case_of(first);
  if (title.empty()) append_utf8(capitalized, first);
  for (const auto part : title) append_utf8(capitalized, part);
  // In lower case with its first character before it, which a sigma may stand behind.
  const auto all = to_lower(text);
  std::string lower_first;
  add_lower(lower_first, first);
  return capitalized + all.substr(lower_first.size());
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t position = 0; position < text.size();) {
    const auto end = position;
    const auto code = next_character(text, position);
    if (!is_line_end(code)) continue;
    if (code == U'\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(begin, (keep_ends ? position : end) - begin));
    begin = position;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace lockstep::jinja
