#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep::tokenizer {

/// The tokens of one text before a post-processor has seen them.
struct Draft {
  Encoding encoding;
  /// For each token the blanks that it begins and ends with, where offsets are to be trimmed; else empty.
  struct Blanks {
    std::uint16_t leading = 0;
    std::uint16_t trailing = 0;
  };
  std::vector<Blanks> blanks;
  std::vector<Draft> overflowing;

  std::size_t size() const noexcept { return encoding.size(); }
};

/// Cuts to `length` tokens; what is cut off becomes overflow. Throws UsageError when the stride is not below
/// a length other than 0.
void truncate(Draft& draft, std::size_t length, const Truncation& truncation);

/// Cuts a text, or both of a pair, to `length` tokens together by the strategy. Throws UsageError when it
/// cannot.
void truncate(Draft& text, Draft* pair, std::size_t length, const Truncation& truncation);

/// Appends the tokens of another encoding, and combines the overflow of both.
void append(Encoding& encoding, const Encoding& other);

/// A token that a post-processor adds.
struct SpecialToken {
  std::string text;
  std::int64_t id = 0;
};

/// Appends one special token; its text too where `return_tokens` says so.
void append_special(Encoding& encoding, const SpecialToken& token, std::int64_t type_id, bool return_tokens);

/// Fills up to the length that the padding says for these encodings, their overflow too;
/// `tokens` too where `return_tokens` says so.
void pad(std::span<Encoding> encodings, const Padding& padding, bool return_tokens);

/// Calls `work` with ranges that cover the numbers below `count`, from `threads` threads (0: one on each
/// core), this one among them. Throws what the first range threw that threw; every range before it has been
/// worked on.
void parallel_for(std::size_t count, int threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

/// Calls `work`; an error in it gets the number of the input put before its text.
void at_input(std::size_t number, const std::function<void()>& work);

}  // namespace lockstep::tokenizer
