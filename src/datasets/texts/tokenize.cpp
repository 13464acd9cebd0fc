#include "lockstep/datasets/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "datasets/texts/tokenizer_key.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
using tokenizer::Encoding;
using List = std::vector<std::int64_t>;

constexpr const char* kOutputs[] = {"input_ids", "attention_mask", "token_type_ids", "special_tokens_mask",
                                    "word_ids"};

void append_output(ColumnBuilder& lists, const Encoding& encoding, const std::string& output) {
  if (output == "input_ids") return lists.append(encoding.ids);
  if (output == "attention_mask") return lists.append(encoding.attention_mask);
  if (output == "token_type_ids") return lists.append(encoding.type_ids);
  if (output == "special_tokens_mask") return lists.append(encoding.special_tokens_mask);
  lists.append(List(encoding.word_ids.begin(), encoding.word_ids.end()));
}

void check_output(const std::string& name) {
  if (std::find(std::begin(kOutputs), std::end(kOutputs), name) != std::end(kOutputs)) return;
  throw UsageError(
      fmt::format("tokenize: there is no output '{}'; there are {}.", name, fmt::join(kOutputs, ", ")));
}

Tokenizer cutting(const TokenizeOptions& options) {
  Tokenizer tokenizer = load_tokenizer(options.tokenizer, options.pretrained);
  if (options.targets) tokenizer = tokenizer.for_targets();
  if (options.max_length == 0) return tokenizer;
  return tokenizer.with_truncation(
      tokenizer::Truncation{.max_length = static_cast<std::size_t>(options.max_length),
                            .side = tokenizer.settings().truncation_side});
}

std::vector<Encoding> encode(const Tokenizer& tokenizer, const MapBatch& batch,
                             const TokenizeOptions& options) {
  const auto texts = batch.column<std::string_view>(options.column);
  std::vector<tokenizer::TextInput> inputs;
  for (std::int64_t i = 0; i < batch.size(); ++i) inputs.push_back({.text = texts[i]});
  if (!options.pair_column.empty()) {
    const auto pairs = batch.column<std::string_view>(options.pair_column);
    for (std::int64_t i = 0; i < batch.size(); ++i) inputs[static_cast<std::size_t>(i)].pair = pairs[i];
  }
  // One thread: the workers of the map are threads already.
  return tokenizer.encode_batch(inputs, {.add_special_tokens = options.add_special_tokens, .threads = 1});
}

Columns columns_of(const std::vector<Encoding>& encodings, const TokenizeOptions& options) {
  Columns columns;
  for (const auto& name : options.outputs) {
    ColumnBuilder lists(DataType::list(DataType(TypeKind::int64)));
    for (const auto& encoding : encodings) append_output(lists, encoding, name);
    columns.emplace_back(name, lists.finish());
  }
  return columns;
}

std::vector<std::string> columns_to_remove(const ArrowDataset& texts, const TokenizeOptions& options) {
  for (const auto& name : options.keep_columns) texts.column(name);
  auto names = texts.column_names();
  std::erase_if(names, [&](const auto& name) {
    return std::find(options.keep_columns.begin(), options.keep_columns.end(), name) !=
           options.keep_columns.end();
  });
  return names;
}

nlohmann::json parameters_of(const TokenizeOptions& options) {
  return {{"targets", options.targets},
          {"column", options.column},
          {"pair_column", options.pair_column},
          {"max_length", options.max_length},
          {"add_special_tokens", options.add_special_tokens},
          {"outputs", options.outputs}};
}

void check_texts(const ArrowDataset& texts, const std::string& name) {
  const auto column = texts.column<std::string_view>(name);
  if (texts.column(name).null_count() == 0) return;
  std::int64_t row = 0;
  while (!column.is_null(row)) ++row;
  throw DataError(fmt::format(
      "tokenize: row {} of the column '{}' is null, not a text: leave such rows out, or give them a text.",
      row, name));
}

void check_tokenize_options(const ArrowDataset& texts, const TokenizeOptions& options) {
  if (options.max_length < 0) {
    throw UsageError(fmt::format("tokenize: max_length must be 0 (texts are not cut) or more, but is {}.",
                                 options.max_length));
  }
  for (const auto& name : options.outputs) check_output(name);
  check_texts(texts, options.column);
  if (!options.pair_column.empty()) check_texts(texts, options.pair_column);
}

/// The files in a folder with one of these endings, sorted.
std::vector<fs::path> files_ending(const fs::path& folder, std::initializer_list<const char*> endings) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const bool wanted = std::find(endings.begin(), endings.end(), entry.path().extension()) != endings.end();
    if (wanted && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<fs::path> tokenizer_files(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<fs::path> files;
  const auto put = [&](const char* name) {
    if (fs::is_regular_file(path / name)) files.push_back(path / name);
  };
  for (const char* name : {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"}) put(name);
  const bool words = fs::exists(path / "tokenizer.json") || fs::exists(path / "vocab.txt") ||
                     (fs::exists(path / "vocab.json") && fs::exists(path / "merges.txt"));
  const auto pieces = files_ending(path, {".model", ".spm"});
  if (!words && pieces.empty()) {
    throw DataError(
        "'" + path.string() +
        "' is not a tokenizer: expected a tokenizer.json or vocab.txt, or a folder with one of them or "
        "with vocab.json and merges.txt.");
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    put(name);
  const auto templates = files_ending(path / "additional_chat_templates", {".jinja"});
  put("chat_template.jinja");
  put("chat_template.json");
  files.insert(files.end(), templates.begin(), templates.end());
  files.insert(files.end(), pieces.begin(), pieces.end());
  return files;
}

Tokenizer load_tokenizer(const fs::path& path, const tokenizer::PretrainedOptions& options) {
  static_cast<void>(tokenizer_files(path));
  return Tokenizer::from_pretrained(path, options);
}

ArrowDataset tokenize(const ArrowDataset& texts, const TokenizeOptions& options, MapOptions map_options) {
  check_tokenize_options(texts, options);
  set_text_map(map_options, {"tokenize", parameters_of(options), options.tokenizer, options.pretrained},
               columns_to_remove(texts, options));
  return map(
      texts, [options](const Worker&) { return cutting(options); },
      [options](const MapBatch& batch, const Tokenizer& tokenizer) {
        return columns_of(encode(tokenizer, batch, options), options);
      },
      map_options);
}

}  // namespace lockstep
