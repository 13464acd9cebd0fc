#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "json_file.hpp"
#include "normalized_string.hpp"
#include "pattern.hpp"

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
/// The pattern of GPT-2.
void split_gpt2(std::string_view text, Words& words);
/// The patterns of cl100k and Llama 3, and of Qwen 2, which splits numbers into single digits.
void split_llama3(std::string_view text, Words& words);
void split_qwen2(std::string_view text, Words& words);

/// The dedicated splitter of a regular expression as written in files; nullptr if there is none.
Splitter find_pattern(std::string_view pattern) noexcept;

/// A text that is being pre-tokenized: its current form, its words, and buffers. For one thread at a time;
/// reused, so that it rarely allocates.
struct SplitText {
  Stretch text;
  Words words;
  Words spare;
  ByteRanges matches;

  /// Buffer for a new form of the text; take() makes it the current one.
  NormalizedString& begin_rewriting();
  void take(const NormalizedString& rewritten) { text = rewritten.stretch(); }

 private:
  std::array<NormalizedString, 2> rewritten_;
  std::size_t current_ = 0;
};

/// A step of a pre-tokenizer: splits the words of a text further, or rewrites them. Any thread.
using PreTokenizerStep = std::function<void(SplitText& split)>;

/// Splits text into words in several steps; each one processes the words of the previous one.
class PreTokenizer {
 public:
  /// A single word: the whole text.
  PreTokenizer() = default;
  /// The pre-tokenizer of a file's field "pre_tokenizer". Throws DataError if it is not supported.
  explicit PreTokenizer(const Node& node);

  /// Whether the words are bytes, which a vocabulary writes as visible characters: the last step is
  /// ByteLevel.
  bool is_byte_level() const noexcept { return byte_level_; }

  /// Writes bytes as visible characters from here on: for parts that do not take bytes.
  void show_bytes();

  /// Sets `split` to the words of a nonempty text. Throws DataError for a regular expression that needs too
  /// many steps.
  void split(const Stretch& text, SplitText& split) const;

 private:
  void add(const Node& node);
  void add_split(const Node& node);

  std::vector<PreTokenizerStep> steps_;
  bool byte_level_ = false;
};

/// Valid, unmodified text of the given number of characters; `begins` is a buffer for their numbers.
Stretch numbered(std::string_view text, std::size_t characters, std::vector<std::uint32_t>& begins);

/// A word as written in a model's vocabulary.
std::string written(std::string_view word, bool byte_level);

/// Whether Metaspace prepends the replacement to every piece of text, only to the first one, or never.
enum class PrependScheme { always, first, never };

/// Reads the field "prepend_scheme" of Metaspace, or its equivalent in older files. Throws DataError.
PrependScheme read_prepend_scheme(const Node& node);

}  // namespace lockstep::tokenizer
