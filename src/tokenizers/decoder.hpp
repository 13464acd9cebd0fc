#pragma once

#include <memory>
#include <string>
#include <vector>

#include "json_file.hpp"

namespace lockstep::tokenizer {

/// Puts tokens together again. Immutable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Changes the tokens to parts of a text, which joined are the text.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// The decoder that a file's field "decoder" describes. Throws DataError for one that is not supported.
std::unique_ptr<const Decoder> make_decoder(const Node& node);

std::unique_ptr<const Decoder> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<const Decoder> make_byte_level_decoder();
/// Tokens with blanks between them: what there is without a decoder.
std::unique_ptr<const Decoder> make_plain_decoder();

}  // namespace lockstep::tokenizer
