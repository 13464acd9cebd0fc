#include "blocks.hpp"

#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "text/files.hpp"

namespace {

using lockstep::Dataset;

std::shared_ptr<const Dataset> blocks_of(const std::string& flag, const std::string& path,
                                         const Options& options, std::int64_t block_size,
                                         const lockstep::DistributedContext& ranks) {
  const auto table = texts::read_table(flag, path, options.data_format);
  texts::check_texts(table, "--text-column", options.text_column);
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  const auto tokens =
      lockstep::tokenize(table, {.tokenizer = options.tokenizer, .column = options.text_column}, map);
  std::vector<std::string> columns = {"input_ids", "labels"};
  if (options.packing) columns.emplace_back("position_ids");
  return std::make_shared<lockstep::ArrowTensorDataset>(
      lockstep::group_texts(tokens, {.block_size = block_size, .return_position_ids = options.packing}, map),
      lockstep::ArrowTensorOptions{.columns = std::move(columns)});
}

}  // namespace

Blocks load_blocks(const Options& options, std::int64_t block_size,
                   const lockstep::DistributedContext& ranks) {
  Blocks blocks;
  blocks.train = blocks_of("--train-file", options.train_file, options, block_size, ranks);
  if (!options.validation_file.empty()) {
    blocks.validation = blocks_of("--validation-file", options.validation_file, options, block_size, ranks);
  }
  return blocks;
}
