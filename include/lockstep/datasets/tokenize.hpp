#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/packing.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

/// The files of a tokenizer: `path` itself if it is a file (tokenizer.json or vocab.txt); of a folder, as
/// models are published, its tokenizer.json, else vocab.txt, else vocab.json and merges.txt. *Local*. Throws
/// DataError, naming what was looked for, when there are none.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& path);

/// The tokenizer in these files. Cutting and filling up that tokenizer.json may ask for are switched off: the
/// program says how long its texts are. *Local*. Errors as Tokenizer::from_file.
Tokenizer load_tokenizer(const std::filesystem::path& path);

/// How texts of a data set become tokens.
struct TokenizeOptions {
  /// See tokenizer_files().
  std::filesystem::path tokenizer;
  /// The column of texts; a null is refused.
  std::string column = "text";
  /// The column of second texts, for tasks on pairs; empty: none.
  std::string pair_column = {};
  /// Tokens at most, special ones included; of a pair the longer text is cut first. 0: all.
  std::int64_t max_length = 0;
  /// [CLS], [SEP] and the like. Language models on running text mostly go without.
  bool add_special_tokens = true;
  /// The lists that the result has: "input_ids", "attention_mask" and "token_type_ids".
  std::vector<std::string> outputs = {"input_ids", "attention_mask"};
  /// Columns of the data set that stay in front, such as the label.
  std::vector<std::string> keep_columns = {};
};

/// Tokenizes every row, once: the result is kept as map() keeps it, by the content of the data, of the
/// tokenizer's files, of these options and of the sources of Lockstep's tokenizers. Lists are of int64. Of
/// `map`, the name, version, parameters, input files and removed columns are set here. *Collective* over
/// `map.ranks`, else *Local*. Errors as map(); UsageError for an output or a column that there is not.
ArrowDataset tokenize(const ArrowDataset& texts, const TokenizeOptions& options, MapOptions map = {});

/// Joins the rows' lists, column by column, and cuts them into rows of `block_size`: the function group_texts
/// of Hugging Face's run_clm.py on all columns, which must be lists of integers of equal lengths in a row.
/// `batch_size` rows are joined at a time (1000 as there) and what does not fill a block at their end is
/// left out. A column `labels`, a copy of `input_ids`, is added where there is none, and what the options ask
/// for. Kept, *Collective* and errors as tokenize(), and `map.batch_size` is set here; DataError for lists of
/// different lengths in a row, UsageError for a block size below 1 and where nothing fills a block.
ArrowDataset group_texts(const ArrowDataset& tokens, const PackingOptions& options, MapOptions map = {});

}  // namespace lockstep
