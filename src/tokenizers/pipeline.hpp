#pragma once

#include <memory>

#include "added_tokens.hpp"
#include "decoder.hpp"
#include "encoding.hpp"
#include "model.hpp"
#include "normalizer.hpp"
#include "post_processor.hpp"
#include "pre_tokenizer.hpp"
#include "workspace.hpp"

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
