#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json_file.hpp"
#include "normalized_string.hpp"

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

/// Splits text into words: by each splitter in turn, the next one splitting the words of the one before.
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
  /// Whether a text, or a word of the splitters, gets a blank before it unless it has one.
  bool adds_prefix_space() const noexcept { return add_prefix_space_; }

  /// Sets `words` to those of a text that is not empty. `spare` is room to work in.
  void split(std::string_view text, Words& words, Words& spare) const;
  /// Appends the words of one of those after its prefix was added.
  void split_prefixed(std::string_view text, Words& words) const;

 private:
  void add(const Node& node);
  void add_split(const Node& node);
  void add_byte_level(const Node& node);

  std::vector<Splitter> splitters_;
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
  /// ByteLevel's own splitter, where it is used.
  Splitter last_ = nullptr;
};

}  // namespace lockstep::tokenizer
