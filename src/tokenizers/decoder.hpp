#pragma once

#include <memory>
#include <string>
#include <vector>

#include "json_file.hpp"

namespace lockstep::tokenizer {

/// Joins tokens to text. Immutable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Converts the tokens to parts of the text, which are then concatenated.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// Creates the decoder of a file's field "decoder". Throws DataError if it is not supported.
std::unique_ptr<const Decoder> make_decoder(const Node& node);

/// Joins tokens with spaces: the default without a decoder.
std::unique_ptr<const Decoder> make_plain_decoder();

}  // namespace lockstep::tokenizer
