#include "samples.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::UsageError;
using Names = std::vector<std::string>;

constexpr const char* kText = "text";

/// The columns of texts, queries first.
Names text_columns_of(const ArrowDataset& table, const std::string& flag, const Options& options) {
  Names names = options.text_columns;
  if (names.empty()) {
    names = table.column_names();
    std::erase(names, options.score_column);
  }
  if (names.size() < 2)
    throw UsageError(
        fmt::format("{}: expected two columns of texts or more, queries first; there are {}: name them with "
                    "--text-columns.",
                    flag, names.size()));
  for (const auto& name : names) texts::check_texts(table, flag, name);
  return names;
}

/// The same texts behind the prompt.
ArrowDataset prompted(const ArrowDataset& rows, const std::string& prompt, lockstep::MapOptions map) {
  if (prompt.empty()) return rows;
  map.name = "prompt";
  map.version = "1";
  map.parameters =
      nlohmann::json{{"prompt", prompt}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  map.remove_columns = {kText};
  return lockstep::map(
      rows,
      [prompt](const lockstep::MapBatch& batch) {
        const auto column = batch.column<std::string_view>(kText);
        std::vector<std::string> all;
        for (std::int64_t i = 0; i < batch.size(); ++i) all.push_back(prompt + std::string(column[i]));
        return lockstep::Columns{{kText, lockstep::make_column(all)}};
      },
      map);
}

/// For each text the number of the first row that has it.
lockstep::Column first_rows(const ArrowDataset& table, const std::string& name) {
  const auto column = table.column<std::string_view>(name);
  std::map<std::string_view, std::int64_t> rows;
  std::vector<std::int64_t> firsts;
  for (std::int64_t row = 0; row < table.num_rows(); ++row)
    firsts.push_back(rows.emplace(column[row], row).first->second);
  return lockstep::make_column(firsts);
}

using NamedColumns = std::vector<std::pair<std::string, lockstep::Column>>;

NamedColumns tokens_of(const ArrowDataset& table, const Names& names, const Options& options,
                       const TextForm& form, const lockstep::DistributedContext& ranks) {
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  NamedColumns columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto text = prompted(ArrowDataset::from_columns({{kText, table.column(names[i])}}),
                               i == 0 ? options.query_prompt : options.document_prompt, map);
    const auto tokens = lockstep::tokenize(
        text, {.tokenizer = options.tokenizer, .column = kText, .max_length = form.max_length}, map);
    columns.emplace_back(ids_column(i), tokens.column("input_ids"));
    columns.emplace_back(mask_column(i), tokens.column("attention_mask"));
  }
  return columns;
}

std::shared_ptr<const lockstep::Dataset> dataset_of(NamedColumns columns, const TextForm& form,
                                                    std::size_t texts) {
  lockstep::ArrowTensorOptions tensors;
  for (const auto& [name, column] : columns) tensors.columns.push_back(name);
  for (std::size_t i = 0; i < texts; ++i) {
    tensors.padding[ids_column(i)] = static_cast<double>(form.pad_token);
    tensors.padding[mask_column(i)] = 0;
  }
  return std::make_shared<lockstep::ArrowTensorDataset>(ArrowDataset::from_columns(std::move(columns)),
                                                        tensors);
}

}  // namespace

std::string ids_column(std::size_t number) { return fmt::format("text{}_ids", number); }
std::string mask_column(std::size_t number) { return fmt::format("text{}_mask", number); }

Samples load_samples(const Options& options, const TextForm& form,
                     const lockstep::DistributedContext& ranks) {
  Samples samples;
  const auto train = texts::read_table("--train-file", options.train_file, "auto");
  const auto names = text_columns_of(train, "--train-file", options);
  samples.train = dataset_of(tokens_of(train, names, options, form, ranks), form, names.size());
  if (options.validation_file.empty()) return samples;
  const std::string flag = "--validation-file";
  const auto table = texts::read_table(flag, options.validation_file, "auto");
  const auto own = text_columns_of(table, flag, options);
  auto columns = tokens_of(table, own, options, form, ranks);
  samples.has_scores = table.has_column(options.score_column);
  samples.has_negatives = !samples.has_scores && own.size() > 2;
  if (samples.has_scores) {
    if (own.size() != 2)
      throw UsageError(
          fmt::format("{}: a score is that of two texts, but there are {} columns of texts: name "
                      "two with --text-columns.",
                      flag, own.size()));
    columns.emplace_back(kScoreColumn, table.column(options.score_column));
  } else {
    columns.emplace_back(kQueryColumn, first_rows(table, own[0]));
    columns.emplace_back(kDocumentColumn, first_rows(table, own[1]));
  }
  samples.validation = dataset_of(std::move(columns), form, own.size());
  return samples;
}
