#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/value.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

// Conversations and texts of a data set as tokens: what all kinds of fine-tuning share. All functions are
// *Local*.

using TokenIds = std::vector<std::int64_t>;

/// A row as JSON, with the messages of the columns `conversations` as `messages`. What the features call Json
/// is parsed. Throws DataError for bytes, and for a text that should be JSON and is not.
nlohmann::ordered_json fields_of_row(const Value& row, const Features& features);

/// The columns of these names that the data set has, and those that belong to conversations (`tools`,
/// `chat_template_kwargs`): what no one reads is not converted.
ArrowDataset columns_to_read(const ArrowDataset& rows, std::vector<std::string> names);

/// With "role" and "content" for the names that ShareGPT's files have, "from" and "value". Other values than
/// lists of messages are returned as they are.
nlohmann::ordered_json with_usual_names(nlohmann::ordered_json messages);

/// Cuts a list to `max_length`: its beginning with `keep_end`, otherwise its end. 0: it is not cut.
void cut_tokens(TokenIds& list, std::int64_t max_length, bool keep_end);

/// "row NUMBER: " before the text of an error.
std::string in_row(std::int64_t number, const std::exception& error);

/// Which tokens of a conversation are asked for.
struct ChatTokensOptions {
  /// With the beginning of an answer at the end.
  bool begins_answer = false;
  /// With Chat::assistant_masks.
  bool with_mask = false;
};

/// A tokenizer with its chat template, or with another one.
class ChatEncoder {
 public:
  ChatEncoder(const std::filesystem::path& tokenizer, const tokenizer::PretrainedOptions& pretrained,
              std::string chat_template);

  /// `row` may have the fields `tools` (a list, or its JSON) and `chat_template_kwargs`. Throws DataError for
  /// what the template refuses.
  tokenizer::Chat encode_chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& row,
                              const ChatTokensOptions& options = {}) const;

  /// A text, with the tokens that the tokenizer puts around it.
  TokenIds encode_text(const std::string& text) const;

  /// The completion begins where the tokens of the prompt alone end, or differ. If they differ, says so once
  /// in this process, as trl does: the model is trained behind another prompt than it will be asked with.
  std::size_t begin_of_completion(const TokenIds& prompt, const TokenIds& whole, std::int64_t row) const;

  /// The text, followed by the eos_token unless it ends with it. Throws UsageError if there is none.
  std::string with_end(const std::string& text) const;

 private:
  Tokenizer tokenizer_;
  std::string chat_template_;
};

}  // namespace lockstep
