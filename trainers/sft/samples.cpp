#include "samples.hpp"

#include <string>

#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/chats.hpp"
#include "text/chats.hpp"
#include "text/files.hpp"
#include "text/special_tokens.hpp"

namespace {

using lockstep::ChatPacking;
using lockstep::Dataset;

lockstep::ChatDataOptions data_options(const Options& options, std::int64_t max_length) {
  lockstep::ChatDataOptions made;
  made.tokenizer = options.tokenizer;
  made.pretrained = texts::with_eos_token(options.eos_token);
  made.chat_template = texts::read_chat_template(options.chat_template_path);
  made.text_column = options.dataset_text_field;
  made.assistant_only_loss = options.assistant_only_loss;
  if (options.completion_only_loss != "auto")
    made.completion_only_loss = options.completion_only_loss == "true";
  made.max_length = options.packing ? 0 : max_length;
  made.keep_end = options.truncation_mode == "keep_end";
  return made;
}

ChatPacking packing_of(const Options& options) {
  if (options.packing_strategy == "wrapped") return ChatPacking::wrapped;
  return options.packing_strategy == "bfd_split" ? ChatPacking::bfd_split : ChatPacking::bfd;
}

/// A column that looks like data to train on, but is none.
std::string unused_in(const lockstep::ArrowDataset& table, const std::string& flag) {
  if (!table.has_column("prompt") || table.has_column("completion")) return {};
  return flag + ": the column 'prompt' is not used, because there is no column 'completion' beside it.";
}

std::shared_ptr<const Dataset> samples_of(const std::string& flag, const std::string& path,
                                          const Options& options, std::int64_t max_length,
                                          const lockstep::DistributedContext& ranks, std::string& unused) {
  const auto table =
      texts::read_table(flag, path, options.data_format == "auto" ? "chats" : options.data_format);
  if (unused.empty()) unused = unused_in(table, flag);
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  auto tokens = lockstep::tokenize_chats(table, data_options(options, max_length), map);
  if (options.packing) tokens = lockstep::pack_chats(tokens, max_length, packing_of(options), map);
  return std::make_shared<lockstep::ArrowTensorDataset>(
      tokens, lockstep::ArrowTensorOptions{.columns = tokens.column_names()});
}

}  // namespace

Samples load_samples(const Options& options, std::int64_t max_length,
                     const lockstep::DistributedContext& ranks) {
  Samples samples;
  samples.train = samples_of("--train-file", options.train_file, options, max_length, ranks, samples.unused);
  if (!options.validation_file.empty()) {
    samples.validation =
        samples_of("--validation-file", options.validation_file, options, max_length, ranks, samples.unused);
  }
  return samples;
}
