#include "lockstep/datasets/chats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "datasets/dataset/concatenate.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/json_feature.hpp"
#include "datasets/texts/chat_encoder.hpp"
#include "datasets/texts/tokenizer_key.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// A row's tokens, and which of them are trained on.
struct Trained {
  TokenIds ids;
  TokenIds labels;
};

/// A prompt counts with its completion alone: beside messages or a text, it repeats how they begin.
bool has_prompts_in(const ArrowDataset& rows) {
  return rows.has_column("prompt") && rows.has_column("completion");
}

/// Nothing predicts the first token of a row.
bool has_trained_token(const TokenIds& labels) {
  return !labels.empty() &&
         std::any_of(labels.begin() + 1, labels.end(), [](auto label) { return label != kNotTrained; });
}

/// Turns rows into tokens: the state of a worker.
class ChatTokenizer {
 public:
  ChatTokenizer(const ChatDataOptions& options, Features features)
      : options_(options),
        features_(std::move(features)),
        encoder_(options.tokenizer, options.pretrained, options.chat_template) {}

  Columns columns_of(const MapBatch& batch) const {
    ColumnBuilder ids(DataType::list(DataType(TypeKind::int64)));
    ColumnBuilder labels(DataType::list(DataType(TypeKind::int64)));
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      auto trained = trained_of(batch.rows[i].value(), batch.first_row + i);
      cut_tokens(trained.ids, options_.max_length, options_.keep_end);
      cut_tokens(trained.labels, options_.max_length, options_.keep_end);
      // What is packed is joined first, where trl's rows of wrapped texts have such rows as well.
      if (options_.max_length > 0 && !has_trained_token(trained.labels)) continue;
      ids.append(trained.ids);
      labels.append(trained.labels);
    }
    return {{"input_ids", ids.finish()}, {"labels", labels.finish()}};
  }

 private:
  Trained trained_of(const Value& row, std::int64_t number) const {
    try {
      const Json fields = fields_of_row(row, features_);
      if (fields.contains("prompt")) return prompt_and_completion(fields, number);
      if (fields.contains("messages")) return conversation(fields);
      return text(fields);
    } catch (const DataError& error) {
      throw DataError(in_row(number, error));
    } catch (const UsageError& error) {
      throw UsageError(in_row(number, error));
    }
  }

  tokenizer::Chat chat_of(const Json& messages, const Json& row) const {
    const bool with_mask = options_.assistant_only_loss;
    auto chat = encoder_.encode_chat(messages, row, {.with_mask = with_mask});
    if (with_mask && std::find(chat.assistant_masks.begin(), chat.assistant_masks.end(), 1) ==
                         chat.assistant_masks.end()) {
      throw DataError(
          "the assistant says nothing in it, and only that is trained on: leave such rows out, or check "
          "where the template "
          "has its {% generation %} blocks.");
    }
    return chat;
  }

  Trained conversation(const Json& row) const {
    const auto messages = with_usual_names(row.at("messages"));
    if (!messages.is_array()) throw DataError("'messages' must be a list of messages.");
    auto chat = chat_of(messages, row);
    return labeled(std::move(chat.encoding.ids), 0, chat.assistant_masks);
  }

  Trained prompt_and_completion(const Json& row, std::int64_t number) const {
    const auto prompt = with_usual_names(row.at("prompt"));
    const auto completion = with_usual_names(row.value("completion", Json()));
    if (prompt.is_string() && completion.is_string()) return text_pair(prompt, completion, number);
    if (!prompt.is_array() || !completion.is_array()) {
      throw DataError("'prompt' and 'completion' must both be texts, or both lists of messages.");
    }
    const auto begin = encoder_.encode_chat(prompt, row, {.begins_answer = true});
    auto messages = prompt;
    messages.insert(messages.end(), completion.begin(), completion.end());
    auto whole = chat_of(messages, row);
    const auto given = begin_of_completion(begin.encoding.ids, whole.encoding.ids, number);
    return labeled(std::move(whole.encoding.ids), given, whole.assistant_masks);
  }

  Trained text_pair(const std::string& prompt, const std::string& completion, std::int64_t number) const {
    auto whole = encoder_.encode_text(prompt + encoder_.with_end(completion));
    const auto given = begin_of_completion(encoder_.encode_text(prompt), whole, number);
    return labeled(std::move(whole), given, {});
  }

  Trained text(const Json& row) const {
    const auto text = row.value(options_.text_column, Json());
    if (!text.is_string()) throw DataError(fmt::format("'{}' is null, or no text.", options_.text_column));
    return labeled(encoder_.encode_text(encoder_.with_end(text.get<std::string>())), 0, {});
  }

  std::size_t begin_of_completion(const TokenIds& prompt, const TokenIds& whole, std::int64_t number) const {
    return options_.completion_only_loss.value_or(true) ? encoder_.begin_of_completion(prompt, whole, number)
                                                        : 0;
  }

  static Trained labeled(TokenIds ids, std::size_t given, const TokenIds& mask) {
    Trained trained{.ids = std::move(ids), .labels = {}};
    trained.labels = trained.ids;
    for (std::size_t i = 0; i < trained.labels.size(); ++i) {
      if (i < given || (!mask.empty() && mask[i] == 0)) trained.labels[i] = kNotTrained;
    }
    return trained;
  }

  ChatDataOptions options_;
  Features features_;
  ChatEncoder encoder_;
};

/// Whether the column may hold lists of messages.
bool may_hold_messages(const ArrowDataset& rows, const std::string& column) {
  return rows.column(column).type().is_list() || table::is_json(rows.features()[column]);
}

std::vector<std::string> columns_of_samples(const ArrowDataset& rows, const ChatDataOptions& options) {
  if (has_prompts_in(rows)) return {"prompt", "completion"};
  if (rows.has_column("messages")) return {"messages", "conversations"};
  if (rows.has_column("conversations")) return {"conversations"};
  return {options.text_column};
}

void check_options(const ArrowDataset& rows, const ChatDataOptions& options) {
  if (options.max_length < 0) {
    throw UsageError(fmt::format(
        "tokenize_chats: max_length must be 0 (texts are not cut) or more, but is {}.", options.max_length));
  }
  const bool has_prompts = has_prompts_in(rows);
  const bool has_messages = rows.has_column("messages") || rows.has_column("conversations");
  if (!has_prompts && !has_messages && !rows.has_column(options.text_column)) {
    throw UsageError(
        fmt::format("tokenize_chats: the data set needs a column 'messages', or 'prompt' and 'completion', "
                    "or a column of texts '{}'; it has '{}'.",
                    options.text_column, fmt::join(rows.column_names(), "', '")));
  }
  if (options.completion_only_loss.value_or(false) && !has_prompts) {
    throw UsageError("tokenize_chats: completion_only_loss needs the columns 'prompt' and 'completion'.");
  }
  if (!options.assistant_only_loss) return;
  if (!may_hold_messages(rows, columns_of_samples(rows, options).front())) {
    throw UsageError(
        "tokenize_chats: assistant_only_loss needs conversations: a text does not say what the assistant "
        "says.");
  }
  const auto tokenizer = load_tokenizer(options.tokenizer, options.pretrained);
  if (!tokenizer.marks_generation({.chat_template = options.chat_template})) {
    throw UsageError(
        "tokenize_chats: assistant_only_loss needs a chat template with {% generation %} and {% "
        "endgeneration %} around what the "
        "assistant says: add them to the tokenizer's chat_template.jinja, or give such a template.");
  }
}

nlohmann::json parameters_of(const ChatDataOptions& options) {
  return {{"chat_template", options.chat_template},
          {"text_column", options.text_column},
          {"assistant_only_loss", options.assistant_only_loss},
          {"completion_only_loss", json_or_null(options.completion_only_loss)},
          {"max_length", options.max_length},
          {"keep_end", options.keep_end}};
}

const std::vector<std::string>& columns_of_chats() {
  static const std::vector<std::string> names{"messages", "conversations", "prompt", "completion",
                                              "chosen",   "rejected",      "tools",  "chat_template_kwargs"};
  return names;
}

/// How many structures are inside each other: one in a list of plain messages.
int depth_of_structures(const DataType& type) {
  int depth = 0;
  for (const auto& field : type.fields()) depth = std::max(depth, depth_of_structures(field.type));
  return depth + (type.kind() == TypeKind::struct_ ? 1 : 0);
}

/// Columns give each object the fields of all others, as null, and a field one type. Of a message itself that
/// is no harm, because templates get no nulls there. What is inside of it, as a tool's arguments and
/// parameters, the template shows to the model.
bool shows_fields_of_others(const ArrowDataset& rows) {
  return std::ranges::any_of(columns_of_chats(), [&](const std::string& name) {
    if (!rows.has_column(name)) return false;
    const bool is_of_messages = name != "tools" && name != "chat_template_kwargs";
    return depth_of_structures(rows.column(name).type()) > (is_of_messages ? 1 : 0);
  });
}

}  // namespace

ArrowDataset load_chats(const std::filesystem::path& path) {
  const auto files = readers::matching_files(path);
  const bool are_json = std::ranges::all_of(files, [](const auto& file) {
    return std::filesystem::is_regular_file(file) && readers::format_of(file, {}) == FileFormat::json;
  });
  if (!are_json) return ArrowDataset::load(path);
  try {
    auto rows = ArrowDataset::load(path);
    if (!shows_fields_of_others(rows)) return rows;
  } catch (const UsageError&) {
    // Files that differ.
  } catch (const DataError&) {
    // Perhaps fields of different types. Otherwise the second reading finds the same fault.
  }
  std::vector<ArrowDataset> parts;
  for (const auto& file : files) parts.push_back(readers::load_json(file, columns_of_chats()));
  return parts.size() == 1 ? parts.front() : concatenated(parts, files);
}

ArrowDataset tokenize_chats(const ArrowDataset& rows, const ChatDataOptions& options,
                            MapOptions map_options) {
  check_options(rows, options);
  const auto read = columns_to_read(rows, columns_of_samples(rows, options));
  set_text_map(map_options, {"tokenize_chats", parameters_of(options), options.tokenizer, options.pretrained},
               read.column_names());
  auto tokens = map(
      read, [options, features = read.features()](const Worker&) { return ChatTokenizer(options, features); },
      [](const MapBatch& batch, const ChatTokenizer& tokenizer) { return tokenizer.columns_of(batch); },
      map_options);
  if (tokens.num_rows() > 0) return tokens;
  throw UsageError(
      fmt::format("tokenize_chats: none of the {} rows has a token to train on within its {} {} tokens: "
                  "raise max_length.",
                  rows.num_rows(), options.keep_end ? "last" : "first", options.max_length));
}

}  // namespace lockstep
