#pragma once

#include <cstdint>
#include <string>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "lockstep/datasets/map.hpp"

/// What the programs that train on texts have in common.
namespace texts {

/// Rows of a file: "auto" by its name (CSV, JSON lines, Arrow, Parquet, a folder that save_to_disk wrote,
/// text by lines), or "text" or "squad" (see load_text and load_squad). Texts keep their line ends. Throws
/// DataError for a file that cannot be read or has no rows, UsageError, naming `flag`, where there is none.
lockstep::ArrowDataset read_table(const std::string& flag, const std::string& path,
                                  const std::string& format);

/// Throws UsageError, naming `flag` and the columns that there are, where `column` is not among them.
void check_column(const lockstep::ArrowDataset& table, const std::string& flag, const std::string& column);

/// How the ranks share the tokenizing.
lockstep::MapOptions map_options(const lockstep::DistributedContext& ranks, const std::string& cache_folder,
                                 bool progress);

/// Throws DataError where the tokenizer knows more tokens than the model in `model`, which knows
/// `vocab_size`.
void check_vocabulary(const std::string& tokenizer, const std::string& model, std::int64_t vocab_size);

/// Copies the tokenizer's files into `folder`, so that it is a whole model: what Hugging Face's
/// from_pretrained and these programs' --model read.
void copy_tokenizer(const std::string& tokenizer, const std::string& folder);

}  // namespace texts
