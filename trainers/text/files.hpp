#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "lockstep/datasets/map.hpp"
#include "text/languages.hpp"

/// Code shared by the programs that train on texts.
namespace texts {

/// Rows of a file. `format` is "auto", by the file's name (CSV, JSON lines, Arrow, Parquet, a folder of
/// save_to_disk, text by lines), "text", "squad" or "chats" (see load_text, load_squad and load_chats; a file
/// of text is read as "text" all the same). Texts keep their line breaks. Throws DataError if the file cannot
/// be read or has no rows, UsageError, with `flag`, if it is missing.
lockstep::ArrowDataset read_table(const std::string& flag, const std::string& path,
                                  const std::string& format);

/// Throws UsageError, with `flag` and the existing columns, if there is no `column`.
void check_column(const lockstep::ArrowDataset& table, const std::string& flag, const std::string& column);

/// The same for a column of texts. Also throws UsageError if it has another type, and DataError, with the
/// first row, if texts are missing.
void check_texts(const lockstep::ArrowDataset& table, const std::string& flag, const std::string& column);

/// Options of the map that tokenizes on all ranks.
lockstep::MapOptions map_options(const lockstep::DistributedContext& ranks, const std::string& cache_folder,
                                 bool progress);

/// Throws DataError if the tokenizer has more tokens than the model in `model`, which has `vocab_size`,
/// unless all others are special ones that no text has.
void check_vocabulary(const std::string& tokenizer, const std::string& model, std::int64_t vocab_size);

/// Throws DataError if the settings of a sentence encoder in `model` ask for texts in lower case, which the
/// tokenizer does not make by itself.
void check_lower_case(const std::string& tokenizer, const std::string& model, bool do_lower_case);

/// Throws UsageError if `length`, which `flag` has set, is more than the model takes: `longest` tokens.
void check_length(const char* flag, std::int64_t length, std::int64_t longest);
/// `length`, checked; if it is 0, `usual`, or `longest` if that is less.
std::int64_t choose_length(const char* flag, std::int64_t length, std::int64_t longest, std::int64_t usual);

/// Copies a file to the name `to`, over what has it. Does nothing, and returns false, if that is the same
/// file: the output folder may be that of the initial model.
bool copy_unless_same(const std::filesystem::path& from, const std::filesystem::path& to);

/// Copies the tokenizer's files into `folder`, unchanged, so that Hugging Face's from_pretrained and these
/// programs' --model can read it. A tokenizer.json alone gets a tokenizer_config.json, which says that it is
/// to be read as it is. Languages that are given are written into tokenizer_config.json, as transformers
/// does.
void copy_tokenizer(const std::string& tokenizer, const std::string& folder, const Languages& languages = {});

}  // namespace texts
