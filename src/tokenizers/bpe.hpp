#pragma once

#include <array>
#include <optional>
#include <unordered_map>

#include "tokenizers/merge_table.hpp"
#include "tokenizers/model.hpp"

namespace lockstep::tokenizer {

/// The merges of a file in order: two tokens each, as written in the vocabulary.
using Merges = std::vector<std::pair<std::string, std::string>>;
/// The two tokens of a merge in a text; null unless there is exactly one blank, between them.
std::optional<std::pair<std::string, std::string>> split_merge(std::string_view text);

/// Byte-pair encoding: begins with the characters or bytes of a word, and repeatedly merges the adjacent pair
/// with the lowest rank, the leftmost first, until no pair can be merged.
class Bpe final : public Model {
 public:
  struct Settings {
    /// Words are bytes, which the vocabulary writes as visible characters; otherwise they are characters.
    bool byte_level = false;
    /// A word that is a token is not split, whatever the merges say.
    bool ignore_merges = false;
    /// Unknown characters become tokens of their bytes, "<0x0A>", if the vocabulary has all of these.
    bool byte_fallback = false;
    /// Otherwise they become this token, adjacent ones together with `fuse_unknown`; if not set, they are
    /// skipped.
    std::optional<std::string> unknown_token = std::nullopt;
    bool fuse_unknown = false;
    /// The prefix of tokens that continue a word, and the suffix of a word's last token.
    std::string continuing_prefix = {};
    std::string end_suffix = {};
  };
  /// Throws DataError, naming the file, if a merge has no token. With `byte_level`, the 243 bytes of UTF-8
  /// must have theirs. An unknown token that the vocabulary lacks is an error once a text needs it.
  Bpe(Vocabulary vocabulary, const Merges& merges, Settings settings, const std::string& file);

  void tokenize(std::string_view word, Tokens& tokens) const override;
  void tokenize_part(std::string_view part, Tokens& tokens) const override;
  std::size_t part_end(std::string_view word, std::size_t begin) const override;
  const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }
  bool is_bpe() const noexcept override { return true; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// The tokens of single characters or bytes at one position of a word.
  struct Symbols {
    std::array<std::uint32_t, 256> low;
    std::unordered_map<char32_t, std::uint32_t> others;
    std::uint32_t find(char32_t code) const noexcept;
    void set(char32_t code, std::uint32_t id);
  };

  void add_symbol(std::string_view token, std::uint32_t id, unsigned position);
  void add_merges(const Merges& merges, const std::string& file);
  void find_words();
  void find_parts(const Merges& merges);
  std::uint32_t require(const std::string& token, std::size_t number, const std::string& file) const;
  /// The symbols of a position: bit 0 if it continues a word, bit 1 if it is the last one.
  const Symbols& symbols(bool is_first, bool is_last) const noexcept;
  void begin_bytes(std::string_view word, Tokens& tokens) const;
  void begin_characters(std::string_view word, Tokens& tokens) const;
  bool fall_back(std::string_view character, Tokens& tokens, std::uint32_t& length) const;
  [[noreturn]] void fail_unknown() const;
  void merge_short(Tokens& tokens) const;
  void merge_long(Tokens& tokens) const;

  Vocabulary vocabulary_;
  Settings settings_;
  std::string file_;
  MergeTable merges_;
  std::array<Symbols, 4> symbols_;
  std::array<std::uint32_t, 256> fallback_{};
  std::uint32_t unknown_ = kNone;
  /// The tokens by their bytes, for ignore_merges with byte_level.
  std::unordered_map<std::string, std::uint32_t> words_;
  /// Pairs of characters that a merge may join; words can be split between all others.
  bool has_parts_ = false;
  MergeTable neighbours_{0};
};

/// Whether a BPE can take words as bytes: each byte of UTF-8 is a token wherever in a word, and no field
/// makes words characters.
bool has_all_bytes(const Node& node);

/// Creates the model of a file of type BPE. Throws DataError.
std::unique_ptr<const Model> make_bpe(const Node& node, bool byte_level);

}  // namespace lockstep::tokenizer
