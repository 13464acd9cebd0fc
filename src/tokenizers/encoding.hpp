#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep::tokenizer {

/// The tokens of one text before post-processing.
struct Draft {
  Encoding encoding;
  /// The number of blanks at both ends of each token, if offsets are trimmed; otherwise empty.
  struct Blanks {
    std::uint16_t leading = 0;
    std::uint16_t trailing = 0;
  };
  std::vector<Blanks> blanks;
  std::vector<Draft> overflowing;

  std::size_t size() const noexcept { return encoding.size(); }
};

/// Truncates to `length` tokens; the rest becomes overflow. Throws UsageError if the stride is not less than
/// a nonzero length.
void truncate(Draft& draft, std::size_t length, const Truncation& truncation);

/// Truncates a text, or both texts of a pair, to `length` tokens in total, by the strategy. Throws UsageError
/// if that is impossible.
void truncate(Draft& text, Draft* pair, std::size_t length, const Truncation& truncation);

/// Appends the tokens of another encoding, and combines the overflow of both.
void append(Encoding& encoding, const Encoding& other);

/// A token that a post-processor adds.
struct SpecialToken {
  std::string text;
  std::int64_t id = 0;
};

/// Appends one special token; its text only with `return_tokens`.
void append_special(Encoding& encoding, const SpecialToken& token, std::int64_t type_id, bool return_tokens);

/// Pads these encodings and their overflow to the length set by `padding`; `tokens` only with
/// `return_tokens`.
void pad(std::span<Encoding> encodings, const Padding& padding, bool return_tokens);

/// Calls `work` with ranges that cover the numbers below `count`, on `threads` threads (0: one per core),
/// including the calling one. Rethrows the exception of the first range that failed; all ranges before it
/// were processed.
void parallel_for(std::size_t count, int threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

/// Calls `work`; prefixes its errors with the number of the input.
void at_input(std::size_t number, const std::function<void()>& work);

}  // namespace lockstep::tokenizer
