#include "lockstep/datasets/tokenize.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using tokenizer::Encoding;
using List = std::vector<std::int64_t>;

/// The list of an encoding that a column is made of.
using Part = List Encoding::*;

Part part_called(const std::string& name) {
  if (name == "input_ids") return &Encoding::ids;
  if (name == "attention_mask") return &Encoding::attention_mask;
  if (name == "token_type_ids") return &Encoding::type_ids;
  throw UsageError("tokenize: there is no output '" + name +
                   "'; there are input_ids, attention_mask and token_type_ids.");
}

Tokenizer cutting(const TokenizeOptions& options) {
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  if (options.max_length == 0) return tokenizer;
  return tokenizer.with_truncation(
      tokenizer::Truncation{.max_length = static_cast<std::size_t>(options.max_length)});
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
  // The workers of the map are threads already.
  return tokenizer.encode_batch(inputs, {.add_special_tokens = options.add_special_tokens, .threads = 1});
}

Columns columns_of(const std::vector<Encoding>& encodings, const TokenizeOptions& options) {
  Columns columns;
  for (const auto& name : options.outputs) {
    ColumnBuilder lists(DataType::list(DataType(TypeKind::int64)));
    for (const auto& encoding : encodings) lists.append(encoding.*part_called(name));
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

std::string parameters_of(const TokenizeOptions& options) {
  return nlohmann::json{{"column", options.column},
                        {"pair_column", options.pair_column},
                        {"max_length", options.max_length},
                        {"add_special_tokens", options.add_special_tokens},
                        {"outputs", options.outputs}}
      .dump();
}

void check(const ArrowDataset& texts, const TokenizeOptions& options) {
  if (options.max_length < 0) {
    throw UsageError("tokenize: max_length must be 0 (texts are not cut) or more, but is " +
                     std::to_string(options.max_length) + ".");
  }
  for (const auto& name : options.outputs) part_called(name);
  texts.column<std::string_view>(options.column);
  if (!options.pair_column.empty()) texts.column<std::string_view>(options.pair_column);
}

}  // namespace

std::vector<fs::path> tokenizer_files(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  const std::vector<std::vector<fs::path>> kinds = {
      {path / "tokenizer.json"}, {path / "vocab.txt"}, {path / "vocab.json", path / "merges.txt"}};
  for (const auto& kind : kinds) {
    if (std::all_of(kind.begin(), kind.end(), [](const auto& file) { return fs::exists(file); })) return kind;
  }
  throw DataError(
      "'" + path.string() +
      "' is no tokenizer: expected a tokenizer.json or vocab.txt, or a folder with one of them or "
      "with vocab.json and merges.txt.");
}

Tokenizer load_tokenizer(const fs::path& path) {
  const auto files = tokenizer_files(path);
  const auto read = [&] {
    if (files.size() == 2) return Tokenizer::from_vocab(files[0], files[1]);
    const bool words = files[0].extension() == ".txt";
    return words ? Tokenizer::from_vocab(files[0]) : Tokenizer::from_file(files[0]);
  };
  return read().with_truncation(std::nullopt).with_padding(std::nullopt);
}

ArrowDataset tokenize(const ArrowDataset& texts, const TokenizeOptions& options, MapOptions map_options) {
  check(texts, options);
  map_options.name = "tokenize";
  map_options.version = LOCKSTEP_TEXTS_VERSION;
  map_options.parameters = parameters_of(options);
  map_options.input_files = tokenizer_files(options.tokenizer);
  map_options.remove_columns = columns_to_remove(texts, options);
  return map(
      texts, [options](const Worker&) { return cutting(options); },
      [options](const MapBatch& batch, const Tokenizer& tokenizer) {
        return columns_of(encode(tokenizer, batch, options), options);
      },
      map_options);
}

}  // namespace lockstep
