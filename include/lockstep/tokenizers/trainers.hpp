#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// Options of training a vocabulary: names and defaults of the package's BpeTrainer and WordPieceTrainer.
struct TrainerOptions {
  /// Total number of tokens, including special tokens and single characters.
  std::size_t vocab_size = 30000;
  /// Minimum frequency of a pair of adjacent tokens to be merged.
  std::uint64_t min_frequency = 0;
  /// They get the first ids, in this order, and are never split.
  std::vector<std::string> special_tokens = {};
  /// Maximum number of different characters; only the most frequent ones are kept.
  std::optional<std::size_t> limit_alphabet = std::nullopt;
  /// Characters that become tokens even if they do not occur in a text; of longer strings, the first one.
  std::vector<std::string> initial_alphabet = {};
  /// Prefix of tokens that continue a word. By default the model's for WordPiece ("##"), and none for BPE.
  std::optional<std::string> continuing_subword_prefix = std::nullopt;
  /// Suffix of tokens that end a word. For BPE; WordPiece has none.
  std::optional<std::string> end_of_word_suffix = std::nullopt;
  /// In characters; shorter tokens are not merged into tokens of this length or more.
  std::optional<std::size_t> max_token_length = std::nullopt;
};

/// Learns the vocabulary of a BPE or WordPiece model from texts, without Python.
///
///     TokenizerTrainer trainer(lockstep::tokenizer::byte_level_bpe());
///     for (const auto& block : blocks) trainer.feed(block);      // vectors of texts
///     write_atomically("tokenizer.json", trainer.train({.vocab_size = 32000, .special_tokens = {"<s>"}}));
///
/// The normalizer and the pre-tokenizer are those of the file that it is created with. The tokens and merges
/// are those of the Python package `tokenizers` for the same texts and options; for BPE, the file is
/// identical to the last byte. If two pairs are equally frequent, the one with lower ids is merged first. In
/// the package, the ids of WordPiece's first tokens differ from run to run, and with them such choices.
///
/// One thread at a time. Everything is *Local*.
class TokenizerTrainer {
 public:
  /// `json`: a tokenizer.json, whose vocabulary may be empty, like that of the package's Tokenizer before
  /// train(). `name` is its name in errors. Throws DataError as Tokenizer::from_json, also for a model that
  /// is neither BPE nor WordPiece.
  explicit TokenizerTrainer(const std::string& json, const std::string& name = "tokenizer.json");
  TokenizerTrainer(TokenizerTrainer&&) noexcept;
  TokenizerTrainer& operator=(TokenizerTrainer&&) noexcept;
  ~TokenizerTrainer();

  /// Counts the words of texts, on this number of threads (0: one per processor core). Throws DataError for a
  /// text that is not UTF-8, with its number: from 1, after the `fed` texts of earlier calls. None of the
  /// texts of this call then count.
  void feed(const std::vector<std::string_view>& texts, int threads = 0, std::int64_t fed = 0);

  /// Returns the tokenizer.json with the learned vocabulary, as the package's to_str(pretty=True) writes it.
  /// Its added tokens are the special tokens. Throws UsageError if there were no words, if special tokens are
  /// empty or occur twice, and if special tokens and single characters alone exceed vocab_size, which the
  /// package ignores.
  std::string train(TrainerOptions options) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The tokenizer.json of an untrained byte-level BPE (GPT-2's, without special tokens), and of an untrained
/// WordPiece (BERT's, uncased or cased; the trainer sets its special tokens).
std::string byte_level_bpe(bool add_prefix_space = false);
std::string bert_word_piece(bool lowercase = true);

/// The 256 characters that represent bytes in byte-level BPE: its initial alphabet. UTF-8, sorted by code
/// point.
std::vector<std::string> byte_level_alphabet();

}  // namespace lockstep::tokenizer
