#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {

/// How preferences become what a language model is trained on (see lockstep/models/dpo.hpp).
struct PreferenceDataOptions {
  /// A model's folder, a tokenizer.json or a vocab.txt: see Tokenizer::from_pretrained().
  std::filesystem::path tokenizer;
  /// What replaces the fields of the folder's files, such as special tokens.
  tokenizer::PretrainedOptions pretrained = {};
  /// The name of one of the folder's chat templates, or a template; see tokenizer::ChatOptions.
  std::string chat_template = {};
  /// A longer prompt with its completion is cut to this many tokens; 0: it is not cut.
  std::int64_t max_length = 1024;
  /// Cut the beginning of what is longer, not its end.
  bool keep_end = false;
};

/// Makes `chosen_ids`, `chosen_labels`, `rejected_ids` and `rejected_labels`, lists of int64, of every row:
/// what trl's DPOTrainer prepares. The ids are those of the prompt with the completion; a label is the token,
/// or kNotTrained in the prompt (lockstep/datasets/chats.hpp). A row has the columns `chosen` and `rejected`,
/// two completions of a prompt of which the first is the better one, and
///
/// - a `prompt`: all three are texts, or all three are conversations (see tokenize_chats());
/// - no column `prompt`: both begin with it. It is the messages that both conversations have in common or,
///   of texts, the characters, without a space at their end. Where one begins with all of the other, its
///   last message or character still belongs to the completion;
/// - a `prompt` that is a text beside two conversations, as in some published data sets: a user's message
///   that both must contain. It is not read otherwise, and the prompt is what both have in common.
///
/// Conversations are written by the tokenizer's chat template, with the row's `tools` and
/// `chat_template_kwargs` as for tokenize_chats(). Texts get the tokenizer's eos_token at their end. The
/// completions begin where the tokens of the prompt alone end, or differ from those of either text. Rows
/// whose prompt has max_length tokens or more are dropped, unless `keep_end`.
///
/// Cached, *Collective* and errors as tokenize(). DataError, with the row's number, for a row that is none of
/// these, that the template refuses, or of which a completion has no tokens; UsageError without these
/// columns, with columns of pictures, and if no row is left.
ArrowDataset tokenize_preferences(const ArrowDataset& rows, const PreferenceDataOptions& options,
                                  MapOptions map = {});

}  // namespace lockstep
