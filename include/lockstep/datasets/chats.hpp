#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

/// The label of a token that is not trained on.
inline constexpr std::int64_t kNotTrained = -100;

/// How texts and conversations become what a language model is fine-tuned on.
struct ChatDataOptions {
  /// A model's folder, a tokenizer.json or a vocab.txt: see Tokenizer::from_pretrained().
  std::filesystem::path tokenizer;
  /// What replaces the fields of the folder's files, such as special tokens.
  tokenizer::PretrainedOptions pretrained = {};
  /// The name of one of the folder's chat templates, or a template; see tokenizer::ChatOptions.
  std::string chat_template = {};
  /// The column of texts, for data sets that have neither messages nor prompts.
  std::string text_column = "text";
  /// Train only on what the assistant says: the template's `{% generation %}` blocks.
  bool assistant_only_loss = false;
  /// Train only on completions, not on prompts. By default if the data set has a column "prompt".
  std::optional<bool> completion_only_loss = std::nullopt;
  /// Longer texts are cut to this many tokens; 0: they are not cut, as for pack_chats(), which cuts itself.
  std::int64_t max_length = 1024;
  /// Cut the beginning of longer texts, not their end.
  bool keep_end = false;
};

/// ArrowDataset::load() for conversations and preferences. In columns, all objects of a place have the same
/// fields, those of others as null, and a field has one type; a chat template would show the model arguments
/// of other tools. Where a file of JSON has objects inside of messages, or `tools`, those columns and the
/// others of conversations therefore have the feature Json of `datasets`, the JSON text of each row. Errors
/// as load().
ArrowDataset load_chats(const std::filesystem::path& path);

/// Makes `input_ids` and `labels`, lists of int64, of every row: what trl's SFTTrainer prepares. A label is
/// the token, or kNotTrained. A row is one of
///
/// - a conversation, in the column `messages` (or `conversations`, whose members may be called `from` and
///   `value`), a list of structures with `role` and `content`;
/// - a `prompt` and its `completion`, both texts or both lists of messages;
/// - a text in the column `text_column`.
///
/// A column `prompt` without `completion` is not read: beside messages, it repeats the first of them.
/// What has the feature Json is parsed. Conversations are written by the tokenizer's chat template, with the
/// row's `tools` (a list, or its JSON) and `chat_template_kwargs` if there are such columns. Texts and
/// completions that are texts get the tokenizer's eos_token at their end. Rows with no label behind the first
/// are dropped, but not for max_length 0.
///
/// Cached, *Collective* and errors as tokenize(). DataError, with the row's number, for a row that is none of
/// these, that the template refuses, or where the assistant says nothing though only that is trained on;
/// UsageError if assistant_only_loss has a template without `{% generation %}` blocks or a data set of texts,
/// and if no row is left with a label.
ArrowDataset tokenize_chats(const ArrowDataset& rows, const ChatDataOptions& options, MapOptions map = {});

/// How pack_chats() fills rows.
enum class ChatPacking {
  /// Best fit, longest first: whole texts, of which longer ones are cut. Each has positions of its own.
  bfd,
  /// The same, but longer texts are split, and all parts kept.
  bfd_split,
  /// One text behind the other, cut where a row is full; without positions, as one running text.
  wrapped,
};

/// Packs the rows of tokenize_chats() into rows of at most `max_length` tokens, as trl does, 1000 rows at a
/// time. Adds `position_ids`, the positions of each token in its text, unless they are wrapped: texts of a
/// row do not see each other then, and the label of their first token is kNotTrained. Rows that are left
/// without a label, such as the middle of a long prompt, are left out; trl keeps them. Cached, *Collective*
/// and errors as tokenize(); UsageError for a length below 1, and if no row has a label.
ArrowDataset pack_chats(const ArrowDataset& tokens, std::int64_t max_length,
                        ChatPacking packing = ChatPacking::bfd, MapOptions map = {});

}  // namespace lockstep
