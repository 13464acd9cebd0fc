#include "pairs.hpp"

#include <string>

#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/preferences.hpp"
#include "text/chats.hpp"
#include "text/files.hpp"

namespace {

using lockstep::Dataset;

std::shared_ptr<const Dataset> pairs_of(const std::string& flag, const std::string& path,
                                        const Options& options, std::int64_t max_length,
                                        const lockstep::DistributedContext& ranks) {
  const auto tokens =
      lockstep::tokenize_preferences(texts::read_table(flag, path, "auto"),
                                     {.tokenizer = options.tokenizer,
                                      .chat_template = texts::read_chat_template(options.chat_template_path),
                                      .max_length = max_length,
                                      .keep_end = options.truncation_mode == "keep_end"},
                                     texts::map_options(ranks, options.cache_dir, !options.disable_tqdm));
  return std::make_shared<lockstep::ArrowTensorDataset>(
      tokens, lockstep::ArrowTensorOptions{.columns = tokens.column_names()});
}

}  // namespace

Pairs load_pairs(const Options& options, std::int64_t max_length, const lockstep::DistributedContext& ranks) {
  Pairs pairs;
  pairs.train = pairs_of("--train-file", options.train_file, options, max_length, ranks);
  if (!options.validation_file.empty())
    pairs.validation = pairs_of("--validation-file", options.validation_file, options, max_length, ranks);
  return pairs;
}
