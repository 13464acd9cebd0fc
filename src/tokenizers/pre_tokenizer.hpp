#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json_file.hpp"
#include "normalized_string.hpp"
#include "pattern.hpp"

namespace lockstep::tokenizer {

/// The bytes of a word in a text; never empty.
using Word = ByteRange;
using Words = ByteRanges;

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

/// The splitter of a regular expression as files write it; nullptr for one that has none of its own.
Splitter find_pattern(std::string_view pattern) noexcept;

/// A text on its way through the parts of a pre-tokenizer: what it has become, its words, and room to work
/// in. For one thread at a time; used again and again, so that it seldom allocates.
struct SplitText {
  Stretch text;
  Words words;
  Words spare;
  ByteRanges matches;

  /// Where a part writes the text anew; `text` becomes that by take().
  NormalizedString& begin_rewriting();
  void take(const NormalizedString& rewritten) { text = rewritten.stretch(); }

 private:
  std::array<NormalizedString, 2> rewritten_;
  std::size_t current_ = 0;
};

/// A part of a pre-tokenizer: splits the words of a text further, or writes them anew. Immutable.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  PreTokenizerStep() = default;
  PreTokenizerStep(const PreTokenizerStep&) = delete;
  PreTokenizerStep& operator=(const PreTokenizerStep&) = delete;

  virtual void apply(SplitText& split) const = 0;
};

/// Splits text into words: by each part in turn, the next one working on the words of the one before.
class PreTokenizer {
 public:
  /// One word: the whole text.
  PreTokenizer() = default;
  /// What a file's field "pre_tokenizer" describes. Throws DataError for one that is not supported.
  explicit PreTokenizer(const Node& node);
  /// One splitter, and ByteLevel alone.
  static PreTokenizer of(Splitter splitter);
  static PreTokenizer byte_level(bool add_prefix_space);

  /// Whether the model gets bytes: the last part was ByteLevel.
  bool is_byte_level() const noexcept { return byte_level_; }

  /// Sets `split` to the words of a text that is not empty. Throws DataError for a regular expression that
  /// takes too many steps.
  void split(const Stretch& text, SplitText& split) const;

 private:
  void add(const Node& node);
  void add_split(const Node& node);
  void add_byte_level(bool add_prefix_space, bool use_regex);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool byte_level_ = false;
};

/// A valid text of so many characters, which has not been changed; `begins` is room for their numbers.
Stretch numbered(std::string_view text, std::size_t characters, std::vector<std::uint32_t>& begins);

/// A word as the vocabulary of a model writes it.
std::string written(std::string_view word, bool byte_level);

/// Whether a text, or each word, gets the replacement of a blank put before it.
enum class PrependScheme { always, first, never };

/// The field "prepend_scheme" of Metaspace, or what older files have in its place. Throws DataError.
PrependScheme read_prepend_scheme(const Node& node);

}  // namespace lockstep::tokenizer
