#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// The bytes of a word in a text; never empty.
struct Word {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
using Words = std::vector<Word>;

/// Appends the words of a valid text; what belongs to none is left out.
using Splitter = void (*)(std::string_view text, Words& words);

/// BertPreTokenizer: parts between white space, each punctuation mark on its own.
void split_bert(std::string_view text, Words& words);
/// Whitespace: \w+|[^\w\s]+
void split_words(std::string_view text, Words& words);
/// WhitespaceSplit: parts between white space.
void split_spaces(std::string_view text, Words& words);
/// The pattern of GPT-2.
void split_gpt2(std::string_view text, Words& words);
/// The pattern of cl100k and Llama 3, and that of Qwen 2, which takes digits one by one.
void split_llama3(std::string_view text, Words& words);
void split_qwen2(std::string_view text, Words& words);

/// The splitter of a regular expression as files write it; nullptr for one that is not known.
Splitter find_pattern(std::string_view pattern) noexcept;

}  // namespace lockstep::tokenizer
