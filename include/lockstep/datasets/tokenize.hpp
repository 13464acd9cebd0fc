#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/packing.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

/// The files of a tokenizer: `path` itself if it is a file (tokenizer.json or vocab.txt); for a folder, as
/// models are published, all of tokenizer.json, vocab.txt, vocab.json and merges.txt that are there, with the
/// files that go with them: tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat templates
/// and SentencePiece files. *Local*. Throws DataError, naming what was expected, for a folder without a
/// vocabulary.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& path);

/// Tokenizer::from_pretrained(): truncation and padding of a tokenizer.json are switched off, because the
/// program sets the length of its texts. *Local*.
Tokenizer load_tokenizer(const std::filesystem::path& path, const tokenizer::PretrainedOptions& options = {});

/// How the texts of a data set are tokenized.
struct TokenizeOptions {
  /// A model's folder, a tokenizer.json or a vocab.txt: see Tokenizer::from_pretrained().
  std::filesystem::path tokenizer;
  /// What replaces the fields of the folder's files, such as the languages of a translation model.
  tokenizer::PretrainedOptions pretrained = {};
  /// The texts are those that a translation model is to write: text_target in Python.
  bool targets = false;
  /// The column of texts; a null is an error.
  std::string column = "text";
  /// The column of second texts, for tasks on pairs; empty: none.
  std::string pair_column = {};
  /// Maximum number of tokens, including special ones; for a pair the longer text is truncated first, on the
  /// side that the tokenizer's folder names. 0: no limit.
  std::int64_t max_length = 0;
  /// Add [CLS], [SEP] and the like.
  bool add_special_tokens = true;
  /// The columns to create: "input_ids", "attention_mask", "token_type_ids", "special_tokens_mask" and
  /// "word_ids" (see tokenizer::Encoding).
  std::vector<std::string> outputs = {"input_ids", "attention_mask"};
  /// Columns of the data set to keep, before the new ones, such as the label.
  std::vector<std::string> keep_columns = {};
};

/// Tokenizes every row once and caches the result as map() does, by the content of the data, of the
/// tokenizer's files, of these options and of the sources of Lockstep's tokenizers. Lists are of int64. Sets
/// the name, version, parameters, input files and removed columns of `map`. *Collective* over `map.ranks`,
/// otherwise *Local*. Errors as map(); UsageError for an output or a column that does not exist.
ArrowDataset tokenize(const ArrowDataset& texts, const TokenizeOptions& options, MapOptions map = {});

/// Concatenates the rows' lists, column by column, and splits them into rows of `block_size`: the function
/// group_texts of Hugging Face's run_clm.py on all columns, which must be lists of integers of equal lengths
/// within a row. `batch_size` rows are concatenated at a time (1000 as in run_clm.py), and the remainder that
/// does not fill a block is dropped. Adds a column `labels`, a copy of `input_ids`, if there is none, and
/// what the options ask for. Cached, *Collective* and errors as tokenize(); sets `map.batch_size`. DataError
/// for lists of different lengths in a row, UsageError for a block size below 1 and if no block is filled.
ArrowDataset group_texts(const ArrowDataset& tokens, const PackingOptions& options, MapOptions map = {});

}  // namespace lockstep
