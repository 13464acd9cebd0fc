#pragma once

#include <string_view>

#include "tokenizers/splitters.hpp"

namespace lockstep::tokenizer {

/// The pattern of GPT-2.
void split_gpt2(std::string_view text, Words& words);
/// The patterns of cl100k and Llama 3, and of Qwen 2, which splits numbers into single digits.
void split_llama3(std::string_view text, Words& words);
void split_qwen2(std::string_view text, Words& words);

/// The dedicated splitter of a regular expression as written in files; nullptr if there is none.
Splitter find_pattern(std::string_view pattern) noexcept;

}  // namespace lockstep::tokenizer
