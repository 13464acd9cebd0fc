#pragma once

#include <memory>

#include "vocabulary.hpp"
#include "word_cache.hpp"

namespace lockstep::tokenizer {

/// Turns words into tokens. Immutable.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Sets `tokens` to those of a word that is not empty: at least one, and together they cover it.
  virtual void tokenize(std::string_view word, Tokens& tokens) const = 0;
  virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// The model that a file's field "model" describes; `byte_level` tells whether its pre-tokenizer ends with
/// ByteLevel, which byte-level BPE needs and WordPiece cannot have. Throws DataError for one that is not
/// supported.
std::unique_ptr<const Model> make_model(const Node& node, bool byte_level);

}  // namespace lockstep::tokenizer
