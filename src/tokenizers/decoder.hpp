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

  virtual std::string decode(const std::vector<std::string_view>& tokens) const = 0;
};

/// The decoder that a file's field "decoder" describes. Throws DataError for one that is not supported.
std::unique_ptr<const Decoder> make_decoder(const Node& node);

std::unique_ptr<const Decoder> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<const Decoder> make_byte_level_decoder();
/// Tokens with blanks between them: what there is without a decoder.
std::unique_ptr<const Decoder> make_plain_decoder();

}  // namespace lockstep::tokenizer
