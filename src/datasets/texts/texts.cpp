#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "data/packed_texts.hpp"
#include "datasets/dataset/state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/text_files.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {

ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options) {
  return with_source(load_text_rows(path, options.keep_linebreaks), path);
}

namespace {

namespace fs = std::filesystem;
using tokenizer::Encoding;
using List = std::vector<std::int64_t>;

/// The member of an encoding that a column is built from.
using Part = List Encoding::*;

Part part_called(const std::string& name) {
  if (name == "input_ids") return &Encoding::ids;
  if (name == "attention_mask") return &Encoding::attention_mask;
  if (name == "token_type_ids") return &Encoding::type_ids;
  throw UsageError("tokenize: there is no output '" + name +
                   "'; there are input_ids, attention_mask and token_type_ids.");
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

template <class Value>
nlohmann::json json_of(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string parameters_of(const TokenizeOptions& options) {
  const auto& pretrained = options.pretrained;
  return json_text(nlohmann::json{{"src_lang", json_of(pretrained.src_lang)},
                                  {"tgt_lang", json_of(pretrained.tgt_lang)},
                                  {"add_bos_token", json_of(pretrained.add_bos_token)},
                                  {"add_eos_token", json_of(pretrained.add_eos_token)},
                                  {"add_prefix_space", json_of(pretrained.add_prefix_space)},
                                  {"do_lower_case", json_of(pretrained.do_lower_case)},
                                  {"special_tokens", pretrained.special_tokens},
                                  {"targets", options.targets},
                                  {"column", options.column},
                                  {"pair_column", options.pair_column},
                                  {"max_length", options.max_length},
                                  {"add_special_tokens", options.add_special_tokens},
                                  {"outputs", options.outputs}});
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

void check(const ArrowDataset& texts, const TokenizeOptions& options) {
  if (options.max_length < 0) {
    throw UsageError(fmt::format("tokenize: max_length must be 0 (texts are not cut) or more, but is {}.",
                                 options.max_length));
  }
  for (const auto& name : options.outputs) part_called(name);
  check_texts(texts, options.column);
  if (!options.pair_column.empty()) check_texts(texts, options.pair_column);
}

}  // namespace

namespace {

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

/// What decides the ids: a tokenizer's files, and the model's configuration, which may name its class.
std::vector<fs::path> deciding_files(const fs::path& path) {
  auto files = tokenizer_files(path);
  if (fs::is_directory(path) && fs::exists(path / "config.json")) files.push_back(path / "config.json");
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
  check(texts, options);
  map_options.name = "tokenize";
  map_options.version = LOCKSTEP_TEXTS_VERSION;
  map_options.parameters = parameters_of(options);
  map_options.input_files = deciding_files(options.tokenizer);
  map_options.remove_columns = columns_to_remove(texts, options);
  return map(
      texts, [options](const Worker&) { return cutting(options); },
      [options](const MapBatch& batch, const Tokenizer& tokenizer) {
        return columns_of(encode(tokenizer, batch, options), options);
      },
      map_options);
}

namespace {

using List = std::vector<std::int64_t>;

/// The concatenated elements of a column's lists, and where each row ends.
struct Joined {
  List values;
  List ends;
};

template <typename T>
Joined joined_of(const Column& column) {
  Joined joined;
  const auto lists = column.view<std::span<const T>>();
  for (std::int64_t row = 0; row < lists.size(); ++row) {
    const auto list = lists[row];
    joined.values.insert(joined.values.end(), list.begin(), list.end());
    joined.ends.push_back(static_cast<std::int64_t>(joined.values.size()));
  }
  return joined;
}

/// Hugging Face's files store token ids as int32 and masks as int8.
Joined joined(const Column& column) {
  const auto kind = column.type().is_list() ? column.type().element().kind() : TypeKind::int64;
  if (kind == TypeKind::int8) return joined_of<std::int8_t>(column);
  if (kind == TypeKind::int16) return joined_of<std::int16_t>(column);
  if (kind == TypeKind::int32) return joined_of<std::int32_t>(column);
  return joined_of<std::int64_t>(column);
}

std::size_t number_of_tokens(const ArrowDataset& tokens) {
  return joined(tokens.columns().front().second).values.size();
}

void check_lengths(const std::string& name, const Joined& one, const std::string& first_name,
                   const Joined& first) {
  const auto [mine, other] = std::mismatch(one.ends.begin(), one.ends.end(), first.ends.begin());
  if (mine == one.ends.end()) return;
  throw DataError(fmt::format("group_texts: '{}' and '{}' have different lengths in row {} of these.", name,
                              first_name, mine - one.ends.begin()));
}

Column blocks_of(const List& numbers, std::int64_t block_size) {
  ColumnBuilder blocks(DataType::list(DataType(TypeKind::int64)));
  const auto size = static_cast<std::size_t>(block_size);
  const std::span<const std::int64_t> values(numbers);
  for (std::size_t begin = 0; begin + size <= values.size(); begin += size)
    blocks.append_list(values.subspan(begin, size));
  return blocks.finish();
}

void keep_apart(Columns& columns, const Joined& tokens, const PackingOptions& options) {
  const auto texts = data::packed_texts(tokens.ends, options.block_size);
  const auto labels = std::find_if(columns.begin(), columns.end(),
                                   [](const auto& column) { return column.first == "labels"; });
  if (labels != columns.end()) {
    auto values = joined(labels->second).values;
    for (std::size_t token = 0; token < values.size(); ++token)
      if (texts.position_ids[token] == 0) values[token] = options.separator_id;
    labels->second = blocks_of(values, options.block_size);
  }
  if (options.return_position_ids)
    columns.emplace_back("position_ids", blocks_of(texts.position_ids, options.block_size));
  if (options.return_seq_idx) columns.emplace_back("seq_idx", blocks_of(texts.seq_idx, options.block_size));
}

Columns group(const MapBatch& batch, const PackingOptions& options) {
  Columns columns;
  Joined first;
  for (const auto& [name, column] : batch.rows.columns()) {
    Joined all = joined(column);
    if (columns.empty()) first = all;
    check_lengths(name, all, batch.rows.columns().front().first, first);
    columns.emplace_back(name, blocks_of(all.values, options.block_size));
  }
  if (!batch.rows.has_column("labels")) {
    const auto ids = std::find_if(columns.begin(), columns.end(),
                                  [](const auto& column) { return column.first == "input_ids"; });
    if (ids != columns.end()) columns.emplace_back("labels", Column(ids->second));
  }
  if (options.return_position_ids || options.return_seq_idx) keep_apart(columns, first, options);
  return columns;
}

}  // namespace

ArrowDataset group_texts(const ArrowDataset& tokens, const PackingOptions& packing, MapOptions options) {
  if (packing.block_size < 1 || packing.batch_size < 0) {
    throw UsageError(fmt::format(
        "group_texts: block_size must be 1 or more and batch_size 0 or more, but they are {} and {}.",
        packing.block_size, packing.batch_size));
  }
  for (const auto& [name, column] : tokens.columns()) joined(column.slice(0, 0));
  options.name = "group_texts";
  options.version = LOCKSTEP_TEXTS_VERSION;
  options.parameters = json_text(nlohmann::json{{"block_size", packing.block_size},
                                                {"return_position_ids", packing.return_position_ids},
                                                {"return_seq_idx", packing.return_seq_idx},
                                                {"separator_id", packing.separator_id}});
  options.batch_size =
      packing.batch_size == 0 ? std::max<std::int64_t>(tokens.num_rows(), 1) : packing.batch_size;
  options.input_files.clear();
  options.remove_columns = tokens.column_names();
  const auto blocks = map(
      tokens, [packing](const MapBatch& batch) { return group(batch, packing); }, options);
  if (blocks.num_rows() > 0) return blocks;
  const bool whole = options.batch_size >= tokens.num_rows();
  throw UsageError(fmt::format(
      "group_texts: {} for a block of {} tokens: take more text or a smaller block.",
      whole ? fmt::format("the {} rows have {} tokens, too few", tokens.num_rows(), number_of_tokens(tokens))
            : fmt::format("{} of the {} rows at a time have too few tokens", options.batch_size,
                          tokens.num_rows()),
      packing.block_size));
}

}  // namespace lockstep
