#pragma once

#include <string>

#include "json_file.hpp"
#include "normalized_string.hpp"
#include "splitters.hpp"

namespace lockstep::tokenizer {

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
