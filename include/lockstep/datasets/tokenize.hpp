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
/// models are published, its tokenizer.json, otherwise vocab.txt, otherwise vocab.json and merges.txt.
/// *Local*. Throws DataError, naming what was expected, if there are none.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& path);

/// Loads the tokenizer in these files. Truncation and padding of a tokenizer.json are switched off: the
/// program sets the length of its texts. *Local*. Errors as Tokenizer::from_file.
Tokenizer load_tokenizer(const std::filesystem::path& path);

/// How the texts of a data set are tokenized.
struct TokenizeOptions {
  /// See tokenizer_files().
  std::filesystem::path tokenizer;
  /// The column of texts; a null is an error.
  std::string column = "text";
  /// The column of second texts, for tasks on pairs; empty: none.
  std::string pair_column = {};
  /// Maximum number of tokens, including special ones; for a pair the longer text is truncated first. 0: no
  /// limit.
  std::int64_t max_length = 0;
  /// Add [CLS], [SEP] and the like. Language models on running text mostly do not use them.
  bool add_special_tokens = true;
  /// The columns to create: "input_ids", "attention_mask" and "token_type_ids".
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
