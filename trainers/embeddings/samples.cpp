#include "samples.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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
namespace fs = std::filesystem;
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

/// What queries and other texts begin with.
struct Prompts {
  std::string query, document;
  bool empty() const { return query.empty() && document.empty(); }
};

nlohmann::json object_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  auto object = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw lockstep::DataError(path.string() + ": expected a JSON object.");
  return object;
}

/// What sentence-transformers' evaluators give texts: the prompts of encode_query() and encode_document() to
/// those of a search, for which one named 'passage' is none, and encode()'s to those that have a score.
Prompts prompts_of_folder(const fs::path& folder, bool has_scores) {
  const auto path = folder / "config_sentence_transformers.json";
  if (!fs::exists(path)) return {};
  const auto config = object_in(path);
  const auto found = config.find("prompts");
  const auto prompts = found == config.end() || found->is_null() ? nlohmann::json::object() : *found;
  const auto usual = config.find("default_prompt_name");
  const bool has_usual = usual != config.end() && !usual->is_null();
  const auto is_prompt = [](const auto& prompt) { return prompt.is_null() || prompt.is_string(); };
  const bool is_well_formed = prompts.is_object() && std::all_of(prompts.begin(), prompts.end(), is_prompt) &&
                              (!has_usual || (usual->is_string() && prompts.contains(*usual)));
  if (!is_well_formed)
    throw lockstep::DataError(
        path.string() +
        ": expected 'prompts' with a text for each name, and one of them as 'default_prompt_name'.");
  const auto named = [&](const std::string& name) -> std::string {
    const auto prompt = prompts.find(name);
    return prompt == prompts.end() || prompt->is_null() ? "" : prompt->get<std::string>();
  };
  if (!has_scores) return {named("query"), named("document")};
  const auto prompt = has_usual ? named(*usual) : "";
  return {prompt, prompt};
}

/// Throws UsageError for a folder whose pooling leaves out the tokens of prompts. The encoder has been read
/// from it.
void check_pooling_of_prompts(const fs::path& folder) {
  std::ifstream file(folder / "modules.json", std::ios::binary);
  for (const auto& module : nlohmann::json::parse(file)) {
    if (!module.at("type").get<std::string>().ends_with("Pooling")) continue;
    const auto path = folder / module.at("path").get<std::string>() / "config.json";
    if (object_in(path).value("include_prompt", nlohmann::json(true)) == true) continue;
    throw UsageError(fmt::format(
        "{}: \"include_prompt\": false, which leaves the tokens of prompts out of pooling, is not "
        "implemented, "
        "and the texts have prompts: set it to true, to train a model that pools them, or leave out the "
        "prompts, of the options and of config_sentence_transformers.json.",
        path.string()));
  }
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
                       const TextForm& form, const Prompts& prompts,
                       const lockstep::DistributedContext& ranks) {
  if (!prompts.empty()) check_pooling_of_prompts(options.model);
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  NamedColumns columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto text = prompted(ArrowDataset::from_columns({{kText, table.column(names[i])}}),
                               i == 0 ? prompts.query : prompts.document, map);
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
  const Prompts given{options.query_prompt, options.document_prompt};
  samples.train = dataset_of(tokens_of(train, names, options, form, given, ranks), form, names.size());
  if (options.validation_file.empty()) return samples;
  const std::string flag = "--validation-file";
  const auto table = texts::read_table(flag, options.validation_file, "auto");
  const auto own = text_columns_of(table, flag, options);
  samples.has_scores = table.has_column(options.score_column);
  const auto prompts = given.empty() ? prompts_of_folder(options.model, samples.has_scores) : given;
  if (given.empty() && !prompts.empty()) {
    samples.prompts = fmt::format(
        "evaluation with the prompts of {}, as in sentence-transformers: '{}' for queries, '{}' for "
        "documents; the training texts have none. --query-prompt and --document-prompt give them to both.",
        options.model, prompts.query, prompts.document);
  }
  auto columns = tokens_of(table, own, options, form, prompts, ranks);
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
