#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

/// How texts that are split into words already, with a label for each, are tokenized.
struct TokenizeWordsOptions {
  /// As of TokenizeOptions. BPE that begins words with a space (RoBERTa) needs add_prefix_space, or the words
  /// have other tokens than in a text.
  std::filesystem::path tokenizer;
  tokenizer::PretrainedOptions pretrained = {};
  /// The column of lists of words.
  std::string column = "tokens";
  /// The column of lists of labels, integers, one for each word.
  std::string label_column = "labels";
  /// Maximum number of tokens, including special ones; what is beyond is cut off, with its labels, on the
  /// side that the tokenizer's folder names. 0: no limit.
  std::int64_t max_length = 0;
  /// The label of a word's further tokens, by that of its first: a number for each label, from 0 on. Empty:
  /// they are not labelled.
  std::vector<std::int64_t> inner_labels = {};
  /// The columns to create besides "labels": "input_ids", "attention_mask" and "token_type_ids".
  std::vector<std::string> outputs = {"input_ids", "attention_mask"};
};

/// Tokenizes every row once, word by word, as tokenizers do with is_split_into_words, and caches the result
/// like tokenize(). A column "labels" has the label of a word at its first token and -100 elsewhere: at
/// special tokens and, without inner_labels, at a word's further tokens. A word without tokens loses its
/// label. No other column is kept. *Collective* over `map.ranks`, otherwise *Local*. Errors as tokenize();
/// DataError, with the row, if it has not as many labels as words, and for missing words and labels.
ArrowDataset tokenize_words(const ArrowDataset& texts, const TokenizeWordsOptions& options,
                            MapOptions map = {});

}  // namespace lockstep
