#include "tokenizers/tokenizer_parts.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {

void check_truncation(const Truncation& truncation, const Pipeline& pipeline) {
  const auto added = pipeline.post_processor.added(false);
  const auto given =
      fmt::format(" (max_length {}, of which {} are special tokens)", truncation.max_length, added);
  if (truncation.max_length < added) {
    throw UsageError(fmt::format("truncation leaves no room for the special tokens{}.", given));
  }
  const auto room = truncation.max_length - added;
  if (truncation.stride > 0 && truncation.stride >= room) {
    throw UsageError(fmt::format("truncation needs a stride below the {} tokens of a piece, not {}{}.", room,
                                 truncation.stride, given));
  }
}

}  // namespace lockstep::tokenizer
