#include "samples.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/masking.hpp"
#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::Dataset;

lockstep::MaskingOptions masking_of(const Options& options, const lockstep::Tokenizer& tokenizer) {
  auto mask = tokenizer.special_token_id("mask_token");
  for (const char* name : {"[MASK]", "<mask>"})
    if (!mask) mask = tokenizer.token_to_id(name);
  if (!mask)
    throw lockstep::DataError("the tokenizer " + options.tokenizer +
                              " has no mask token: expected mask_token in its folder, [MASK] or <mask>.");
  return {.mask_token_id = *mask,
          .vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()),
          .mlm_probability = options.mlm_probability,
          .whole_word_mask = options.whole_word_mask};
}

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char byte) { return std::isspace(byte) != 0; });
}

/// The texts that have anything but white space.
ArrowDataset texts_with_words(const ArrowDataset& table, const Options& options, const std::string& path) {
  const auto texts = table.column<std::string_view>(options.text_column);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < table.num_rows(); ++row)
    if (!is_blank(texts[row])) rows.push_back(row);
  if (rows.empty()) throw lockstep::DataError(path + ": the texts have nothing but white space.");
  return table.select(rows);
}

std::shared_ptr<const Dataset> samples_of(const std::string& flag, const std::string& path,
                                          const Options& options, const lockstep::MaskingOptions& masking,
                                          std::int64_t max_length, std::int64_t pad_token,
                                          const lockstep::DistributedContext& ranks) {
  auto table = texts::read_table(flag, path, options.data_format);
  texts::check_texts(table, "--text-column", options.text_column);
  if (options.line_by_line) table = texts_with_words(table, options, path);
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  std::vector<std::string> columns = {"input_ids", "special_tokens_mask"};
  if (options.whole_word_mask) columns.emplace_back("word_ids");
  if (options.line_by_line) columns.emplace_back("attention_mask");
  auto tokens = lockstep::tokenize(table,
                                   {.tokenizer = options.tokenizer,
                                    .column = options.text_column,
                                    .max_length = options.line_by_line ? max_length : 0,
                                    .outputs = columns},
                                   map);
  if (!options.line_by_line) tokens = lockstep::group_texts(tokens, {.block_size = max_length}, map);
  lockstep::ArrowTensorOptions tensors{.columns = columns};
  if (options.line_by_line)
    tensors.padding = {{"input_ids", static_cast<double>(pad_token)},
                       {"special_tokens_mask", 1},
                       {"attention_mask", 0},
                       {"word_ids", -1}};
  return lockstep::masked(std::make_shared<lockstep::ArrowTensorDataset>(tokens, tensors), masking);
}

}  // namespace

Samples load_samples(const Options& options, const lockstep::Tokenizer& tokenizer, std::int64_t max_length,
                     std::int64_t pad_token, const lockstep::DistributedContext& ranks) {
  const auto masking = masking_of(options, tokenizer);
  Samples samples;
  samples.train =
      samples_of("--train-file", options.train_file, options, masking, max_length, pad_token, ranks);
  if (!options.validation_file.empty()) {
    samples.validation = samples_of("--validation-file", options.validation_file, options, masking,
                                    max_length, pad_token, ranks);
  }
  return samples;
}
