#include "rows.hpp"

#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::Dataset;

ArrowDataset read_rows(const std::string& flag, const std::string& path, const Options& options) {
  const auto table = texts::read_table(flag, path, "auto");
  texts::check_texts(table, "--text-column", options.text_column);
  texts::check_column(table, "--label-column", options.label_column);
  if (!options.pair_column.empty()) texts::check_texts(table, "--pair-column", options.pair_column);
  return table;
}

std::shared_ptr<const Dataset> tokenized(const ArrowDataset& labelled, const Options& options,
                                         std::int64_t pad_token, const lockstep::DistributedContext& ranks) {
  const auto rows = lockstep::tokenize(labelled,
                                       {.tokenizer = options.tokenizer,
                                        .column = options.text_column,
                                        .pair_column = options.pair_column,
                                        .max_length = options.max_length,
                                        .outputs = {"input_ids", "attention_mask", "token_type_ids"},
                                        .keep_columns = {"labels"}},
                                       texts::map_options(ranks, options.cache_dir, !options.disable_tqdm));
  return std::make_shared<lockstep::ArrowTensorDataset>(
      rows, lockstep::ArrowTensorOptions{.padding = {{"input_ids", static_cast<double>(pad_token)},
                                                     {"attention_mask", 0},
                                                     {"token_type_ids", 0}}});
}

}  // namespace

Rows load_rows(const Options& options, const ModelFacts& model, const lockstep::DistributedContext& ranks) {
  const auto train = read_rows("--train-file", options.train_file, options);
  Rows rows{.train = nullptr,
            .validation = nullptr,
            .classes = texts::classes_of(train, options.label_column, options.train_file)};
  if (model.classes) {
    rows.classes = texts::agreed_classes(rows.classes, *model.classes, options.train_file, options.model);
  }
  const auto use = [&](const ArrowDataset& table, const std::string& file) {
    return tokenized(texts::with_labels(table, options.label_column, rows.classes, file), options,
                     model.pad_token, ranks);
  };
  rows.train = use(train, options.train_file);
  if (options.validation_file.empty()) return rows;
  rows.validation =
      use(read_rows("--validation-file", options.validation_file, options), options.validation_file);
  return rows;
}
