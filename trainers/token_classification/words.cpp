#include "words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/tokenize_words.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::Dataset;

/// The column of tags, as run_ner.py finds it.
std::string label_column_of(const ArrowDataset& table, const Options& options) {
  if (!options.label_column.empty()) return options.label_column;
  for (const char* name : {"ner_tags", "labels"})
    if (table.has_column(name)) return name;
  throw lockstep::UsageError(
      fmt::format("--label-column is missing: there is no column ner_tags or labels; there are '{}'.",
                  fmt::join(table.column_names(), "', '")));
}

ArrowDataset read_words(const std::string& flag, const std::string& path, const Options& options) {
  const auto table = texts::read_table(flag, path, "auto");
  texts::check_column(table, "--text-column", options.text_column);
  texts::check_column(table, "--label-column", label_column_of(table, options));
  return table;
}

/// For each tag that of a word's further tokens: I-X for B-X, if there is such a tag.
std::vector<std::int64_t> inner_tags(const std::vector<std::string>& names) {
  std::vector<std::int64_t> inner;
  for (std::size_t tag = 0; tag < names.size(); ++tag) {
    const auto found = names[tag].starts_with("B-")
                           ? std::find(names.begin(), names.end(), "I-" + names[tag].substr(2))
                           : names.end();
    inner.push_back(found == names.end() ? static_cast<std::int64_t>(tag) : found - names.begin());
  }
  return inner;
}

/// As run_ner.py: words of a text begin with a space, those that come alone as well.
lockstep::tokenizer::PretrainedOptions tokenizer_options(const Options& options, const ModelFacts& model) {
  lockstep::tokenizer::PretrainedOptions pretrained;
  if (model.model_type == "roberta" && std::filesystem::is_directory(options.tokenizer))
    pretrained.add_prefix_space = true;
  return pretrained;
}

std::shared_ptr<const Dataset> tokenized(const ArrowDataset& table, const std::string& file,
                                         const Options& options, const ModelFacts& model,
                                         const texts::Classes& classes,
                                         const lockstep::DistributedContext& ranks) {
  const auto labelled = texts::with_tags(table, label_column_of(table, options), classes, file);
  const auto rows = lockstep::tokenize_words(
      labelled,
      {.tokenizer = options.tokenizer,
       .pretrained = tokenizer_options(options, model),
       .column = options.text_column,
       .max_length = options.max_length,
       .inner_labels = options.label_all_tokens ? inner_tags(classes.names) : std::vector<std::int64_t>(),
       .outputs = {"input_ids", "attention_mask", "token_type_ids"}},
      texts::map_options(ranks, options.cache_dir, !options.disable_tqdm));
  return std::make_shared<lockstep::ArrowTensorDataset>(
      rows, lockstep::ArrowTensorOptions{.padding = {{"input_ids", static_cast<double>(model.pad_token)},
                                                     {"attention_mask", 0},
                                                     {"token_type_ids", 0},
                                                     {"labels", -100}}});
}

}  // namespace

Words load_words(const Options& options, const ModelFacts& model, const lockstep::DistributedContext& ranks) {
  const auto train = read_words("--train-file", options.train_file, options);
  Words words;
  words.classes = texts::tag_classes_of(train, label_column_of(train, options), options.train_file);
  if (model.classes) {
    words.classes = texts::agreed_classes(words.classes, *model.classes, options.train_file, options.model);
  }
  if (words.classes.names.empty())
    throw lockstep::DataError(
        fmt::format("{}: the tags are numbers without names, and the model in {} has none: expected names "
                    "(B-PER, O), a ClassLabel, or id2label in config.json.",
                    options.train_file, options.model));
  words.train = tokenized(train, options.train_file, options, model, words.classes, ranks);
  if (options.validation_file.empty()) return words;
  const auto validation = read_words("--validation-file", options.validation_file, options);
  words.validation = tokenized(validation, options.validation_file, options, model, words.classes, ranks);
  return words;
}
