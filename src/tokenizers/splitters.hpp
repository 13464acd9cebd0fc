#pragma once

#include <string_view>

#include "tokenizers/pattern.hpp"

namespace lockstep::tokenizer {

/// The byte range of a word in a text; never empty.
using Word = ByteRange;
using Words = ByteRanges;

/// Appends the words of valid text; omits text that belongs to no word.
using Splitter = void (*)(std::string_view text, Words& words);

/// BertPreTokenizer: splits at white space, and makes each punctuation mark a word.
void split_bert(std::string_view text, Words& words);
/// Whitespace: \w+|[^\w\s]+
void split_words(std::string_view text, Words& words);
/// WhitespaceSplit: splits at white space.
void split_spaces(std::string_view text, Words& words);
/// UnicodeScripts: splits where the script changes; spaces belong to what precedes them, and Kana to Han.
void split_scripts(std::string_view text, Words& words);

}  // namespace lockstep::tokenizer
