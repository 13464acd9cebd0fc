#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// How a vocabulary is made: names and defaults of the package's BpeTrainer and WordPieceTrainer.
struct TrainerOptions {
  /// Tokens in all, special ones and single characters included.
  std::size_t vocab_size = 30000;
  /// Two tokens that stand side by side less often become none.
  std::uint64_t min_frequency = 0;
  /// They get the first ids, in this order, and are never taken apart.
  std::vector<std::string> special_tokens = {};
  /// So many different characters, the most frequent ones; others are left out.
  std::optional<std::size_t> limit_alphabet = std::nullopt;
  /// Characters that are tokens whether a text has them or not; of longer strings the first one.
  std::vector<std::string> initial_alphabet = {};
  /// Written before what goes on a word. Without one: WordPiece takes the model's, "##", and BPE none.
  std::optional<std::string> continuing_subword_prefix = std::nullopt;
  /// Written behind what ends a word. For BPE; WordPiece has none.
  std::optional<std::string> end_of_word_suffix = std::nullopt;
  /// In characters; tokens of this length and more are not made of shorter ones.
  std::optional<std::size_t> max_token_length = std::nullopt;
};

/// Learns the vocabulary of a BPE or WordPiece model from texts, without Python.
///
///     TokenizerTrainer trainer(lockstep::tokenizer::byte_level_bpe());
///     for (const auto& block : blocks) trainer.feed(block);      // vectors of texts
///     write_atomically("tokenizer.json", trainer.train({.vocab_size = 32000, .special_tokens = {"<s>"}}));
///
/// The normalizer and the pre-tokenizer are those of the file that it is made with. The tokens and merges are
/// those of the Python package `tokenizers` for the same texts and options: BPE's to the last byte of the
/// file. Where two pairs are equally frequent, the one of lower ids goes first; in the package the ids of
/// WordPiece's first tokens differ from run to run, and with them such choices.
///
/// One thread at a time. Everything is *Local*.
class TokenizerTrainer {
 public:
  /// `json`: a tokenizer.json, whose vocabulary may be empty: the package's Tokenizer before train(). `name`
  /// stands for it in errors. Throws DataError as Tokenizer::from_json, also for a model that is neither BPE
  /// nor WordPiece.
  explicit TokenizerTrainer(const std::string& json, const std::string& name = "tokenizer.json");
  TokenizerTrainer(TokenizerTrainer&&) noexcept;
  TokenizerTrainer& operator=(TokenizerTrainer&&) noexcept;
  ~TokenizerTrainer();

  /// Counts the words of texts, on so many threads (0: one on each processor core). Throws DataError for a
  /// text that is no UTF-8, by its number from 1 on after the `fed` texts that came before; then nothing of
  /// these texts counts.
  void feed(const std::vector<std::string_view>& texts, int threads = 0, std::int64_t fed = 0);

  /// The tokenizer.json with the vocabulary that was learnt, as the package's to_str(pretty=True) writes it.
  /// Its added tokens are the special ones. Throws UsageError when there were no words, for special tokens
  /// that are empty or given twice, and where special tokens and single characters alone exceed vocab_size,
  /// which the package passes over.
  std::string train(TrainerOptions options) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The tokenizer.json of an untrained byte-level BPE (GPT-2's, without special tokens), and of an untrained
/// WordPiece (BERT's, uncased or not; its special tokens are up to the trainer).
std::string byte_level_bpe(bool add_prefix_space = false);
std::string bert_word_piece(bool lowercase = true);

/// The 256 characters that byte-level BPE writes bytes as: its initial alphabet. UTF-8, sorted by code.
std::vector<std::string> byte_level_alphabet();

}  // namespace lockstep::tokenizer
