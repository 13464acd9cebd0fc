#include "lockstep/datasets/preferences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "datasets/texts/chat_encoder.hpp"
#include "datasets/texts/tokenizer_key.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/chats.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// A prompt with two completions of it: texts, or lists of messages.
struct Preference {
  Json prompt, chosen, rejected;
};

/// The tokens of the prompt with a completion, which begins at `given`.
struct Completed {
  TokenIds ids;
  std::size_t given = 0;
};

/// Whether two messages say the same, whatever the order of their members, and whether members that have no
/// value are there.
bool is_same_message(const Json& one, const Json& other) {
  const auto members_of = [](const Json& message) {
    nlohmann::json members = nlohmann::json::object();
    for (const auto& [name, value] : message.items())
      if (!value.is_null()) members[name] = value;
    return members;
  };
  return members_of(one) == members_of(other);
}

/// The number of messages that both begin with, less than the shorter one has.
std::size_t common_messages(const Json& chosen, const Json& rejected) {
  const auto most = std::min(chosen.size(), rejected.size());
  std::size_t common = 0;
  while (common + 1 < most && is_same_message(chosen[common], rejected[common])) ++common;
  return common;
}

/// Whether a character begins with this byte of UTF-8, not in the middle of one.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

/// The number of bytes of the characters that both texts begin with, fewer than the shorter one has; a space
/// at their end belongs to the completions, whose first word it is part of.
std::size_t common_characters(const std::string& chosen, const std::string& rejected) {
  const auto most = std::min(chosen.size(), rejected.size());
  const auto differ =
      std::mismatch(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(most), rejected.begin())
          .first;
  auto common = static_cast<std::size_t>(differ - chosen.begin());
  const bool differs = common < most;
  if (!differs) --common;
  while (common > 0 && !(begins_character(chosen[common]) && begins_character(rejected[common]))) --common;
  // As in trl, which looks for it only where the texts differ.
  if (differs && common > 0 && chosen[common - 1] == ' ') --common;
  return common;
}

Json messages_from(const Json& messages, std::size_t begin, std::size_t end) {
  auto part = Json::array();
  for (auto i = begin; i < end; ++i) part.push_back(messages[i]);
  return part;
}

/// Throws if a conversation is the beginning of the other one, up to a message that is no answer.
void require_completions(const Json& chosen, const Json& rejected) {
  const bool is_chosen = chosen.size() <= rejected.size();
  const Json &less = is_chosen ? chosen : rejected, &more = is_chosen ? rejected : chosen;
  if (!std::equal(less.begin(), less.end(), more.begin(), is_same_message)) return;
  const Json role = less.back().is_object() ? less.back().value("role", Json()) : Json();
  if (role != "user" && role != "system" && role != "tool") return;
  throw DataError(fmt::format("'{}' has only the prompt, a completion is missing: leave such rows out.",
                              is_chosen ? "chosen" : "rejected"));
}

/// The prompt is what both begin with; that of conversations may be empty.
Preference split_common(const Json& chosen, const Json& rejected) {
  if (chosen.empty() || rejected.empty() || chosen == "" || rejected == "")
    throw DataError("'chosen' or 'rejected' is empty.");
  if (chosen.is_string()) {
    const auto better = chosen.get<std::string>(), worse = rejected.get<std::string>();
    const auto common = common_characters(better, worse);
    return {better.substr(0, common), better.substr(common), worse.substr(common)};
  }
  require_completions(chosen, rejected);
  const auto common = common_messages(chosen, rejected);
  return {messages_from(chosen, 0, common), messages_from(chosen, common, chosen.size()),
          messages_from(rejected, common, rejected.size())};
}

bool has_user_message(const Json& messages, const Json& content) {
  return std::any_of(messages.begin(), messages.end(), [&](const Json& message) {
    return message.is_object() && message.value("role", Json()) == "user" &&
           message.value("content", Json()) == content;
  });
}

Preference preference_in(const Json& row) {
  const auto chosen = with_usual_names(row.at("chosen")), rejected = with_usual_names(row.at("rejected"));
  const bool are_texts = chosen.is_string() && rejected.is_string();
  if (!are_texts && !(chosen.is_array() && rejected.is_array()))
    throw DataError("'chosen' and 'rejected' must both be texts, or both lists of messages.");
  if (!row.contains("prompt")) {
    auto split = split_common(chosen, rejected);
    if (are_texts || !split.prompt.empty()) return split;
    throw DataError(
        "'chosen' and 'rejected' have no first message in common, which would be the prompt: give a column "
        "'prompt', or conversations that begin with it.");
  }
  const auto prompt = with_usual_names(row.at("prompt"));
  if (are_texts ? prompt.is_string() : prompt.is_array()) return {prompt, chosen, rejected};
  if (are_texts || !prompt.is_string())
    throw DataError("'prompt' must be a text beside texts, or a list of messages beside such lists.");
  auto split = split_common(chosen, rejected);
  if (!has_user_message(split.prompt, prompt))
    throw DataError(
        "'prompt' is a text, but the messages that 'chosen' and 'rejected' have in common do not contain it: "
        "give it as a list of messages.");
  return split;
}

/// Turns rows into tokens: the state of a worker.
class PreferenceTokenizer {
 public:
  PreferenceTokenizer(const PreferenceDataOptions& options, Features features)
      : options_(options),
        features_(std::move(features)),
        encoder_(options.tokenizer, options.pretrained, options.chat_template) {}

  Columns columns_of(const MapBatch& batch) const {
    const std::array names{"chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels"};
    const auto list = DataType::list(DataType(TypeKind::int64));
    std::vector<ColumnBuilder> columns;
    for (std::size_t i = 0; i < names.size(); ++i) columns.emplace_back(list);
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const auto pair = completed(batch.rows[i].value(), batch.first_row + i);
      const bool is_all_prompt = options_.max_length > 0 && !options_.keep_end &&
                                 std::cmp_greater_equal(pair.front().given, options_.max_length);
      if (is_all_prompt) continue;
      for (std::size_t side = 0; side < pair.size(); ++side) {
        columns[2 * side].append(cut(pair[side].ids));
        columns[2 * side + 1].append(cut(labels_of(pair[side])));
      }
    }
    Columns made;
    for (std::size_t i = 0; i < names.size(); ++i) made.emplace_back(names[i], columns[i].finish());
    return made;
  }

 private:
  TokenIds cut(TokenIds list) const {
    cut_tokens(list, options_.max_length, options_.keep_end);
    return list;
  }

  static TokenIds labels_of(const Completed& text) {
    TokenIds labels = text.ids;
    std::fill(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(text.given), kNotTrained);
    return labels;
  }

  /// Of the chosen and of the rejected completion; they begin at the same token.
  std::array<Completed, 2> completed(const Value& row, std::int64_t number) const {
    try {
      const Json fields = fields_of_row(row, features_);
      const auto [prompt, chosen, rejected] = preference_in(fields);
      const bool is_text = prompt.is_string();
      const auto begin = is_text ? encoder_.encode_text(prompt)
                                 : encoder_.encode_chat(prompt, fields, {.begins_answer = true}).encoding.ids;
      std::array<Completed, 2> pair;
      pair[0].ids = is_text ? text_ids(prompt, chosen) : chat_ids(prompt, chosen, fields);
      pair[1].ids = is_text ? text_ids(prompt, rejected) : chat_ids(prompt, rejected, fields);
      const auto given = std::min(encoder_.begin_of_completion(begin, pair[0].ids, number),
                                  encoder_.begin_of_completion(begin, pair[1].ids, number));
      for (auto& text : pair) {
        text.given = given;
        if (text.ids.size() == given)
          throw DataError(fmt::format("'{}' has no tokens after the prompt: leave such rows out.",
                                      &text == pair.data() ? "chosen" : "rejected"));
      }
      return pair;
    } catch (const DataError& error) {
      throw DataError(in_row(number, error));
    } catch (const UsageError& error) {
      throw UsageError(in_row(number, error));
    }
  }

  TokenIds text_ids(const std::string& prompt, const std::string& completion) const {
    return encoder_.encode_text(prompt + encoder_.with_end(completion));
  }

  TokenIds chat_ids(Json messages, const Json& completion, const Json& row) const {
    messages.insert(messages.end(), completion.begin(), completion.end());
    return encoder_.encode_chat(messages, row).encoding.ids;
  }

  PreferenceDataOptions options_;
  Features features_;
  ChatEncoder encoder_;
};

void check_preferences(const ArrowDataset& rows, const PreferenceDataOptions& options) {
  if (options.max_length < 0) {
    throw UsageError(
        fmt::format("tokenize_preferences: max_length must be 0 (texts are not cut) or more, but is {}.",
                    options.max_length));
  }
  for (const char* pictures : {"image", "images"}) {
    if (rows.has_column(pictures))
      throw UsageError(fmt::format(
          "tokenize_preferences: the data set has a column '{}', but models of pictures and texts are not "
          "supported: leave the column out if the texts do not need it.",
          pictures));
  }
  if (rows.has_column("chosen") && rows.has_column("rejected")) return;
  if (rows.has_column("completion") && rows.has_column("label"))
    throw UsageError(
        "tokenize_preferences: the data set has single completions with a label, as for KTO, which is not "
        "supported: give pairs, in columns 'chosen' and 'rejected'.");
  throw UsageError(
      fmt::format("tokenize_preferences: the data set needs columns 'chosen' and 'rejected', and may have a "
                  "column 'prompt'; it has '{}'.",
                  fmt::join(rows.column_names(), "', '")));
}

nlohmann::json parameters_of_preferences(const PreferenceDataOptions& options) {
  return {{"chat_template", options.chat_template},
          {"max_length", options.max_length},
          {"keep_end", options.keep_end}};
}

}  // namespace

ArrowDataset tokenize_preferences(const ArrowDataset& rows, const PreferenceDataOptions& options,
                                  MapOptions map_options) {
  check_preferences(rows, options);
  const auto read = columns_to_read(rows, {"prompt", "chosen", "rejected"});
  set_text_map(
      map_options,
      {"tokenize_preferences", parameters_of_preferences(options), options.tokenizer, options.pretrained},
      read.column_names());
  auto tokens = map(
      read,
      [options, features = read.features()](const Worker&) { return PreferenceTokenizer(options, features); },
      [](const MapBatch& batch, const PreferenceTokenizer& tokenizer) { return tokenizer.columns_of(batch); },
      map_options);
  if (tokens.num_rows() > 0) return tokens;
  throw UsageError(fmt::format(
      "tokenize_preferences: the prompt of each of the {} rows has {} tokens or more: raise max_length.",
      rows.num_rows(), options.max_length));
}

}  // namespace lockstep
