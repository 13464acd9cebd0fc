#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/json_file.hpp"
#include "tokenizers/normalized_string.hpp"
#include "tokenizers/pattern.hpp"
#include "tokenizers/splitters.hpp"

namespace lockstep::tokenizer {

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
