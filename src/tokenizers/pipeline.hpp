#pragma once

#include <memory>

#include "tokenizers/added_tokens.hpp"
#include "tokenizers/decoder.hpp"
#include "tokenizers/encoding.hpp"
#include "tokenizers/model.hpp"
#include "tokenizers/normalizer.hpp"
#include "tokenizers/post_processor.hpp"
#include "tokenizers/pre_tokenizer.hpp"
#include "tokenizers/workspace.hpp"

namespace lockstep::tokenizer {

/// The parts of a tokenizer, and encoding up to the post-processor. Immutable.
struct Pipeline {
  std::unique_ptr<const Normalizer> normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder = join_by_spaces;

  /// The tokens of a text, the first (0) or second (1) of a pair; their texts only with `return_tokens`.
  /// Throws DataError for text that is not UTF-8.
  Draft encode(std::string_view text, int sequence, bool return_tokens, Workspace& workspace) const;
};

}  // namespace lockstep::tokenizer
