#include "tokenizers/encoding.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <thread>

#include "core/parallel_for.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

/// Calls `use` for each list of an encoding and the same list of another one.
template <class Use>
void each_list(Encoding& to, const Encoding& from, const Use& use) {
  use(to.ids, from.ids);
  use(to.type_ids, from.type_ids);
  use(to.attention_mask, from.attention_mask);
  use(to.special_tokens_mask, from.special_tokens_mask);
  use(to.offsets, from.offsets);
  use(to.word_ids, from.word_ids);
  use(to.sequence_ids, from.sequence_ids);
  use(to.tokens, from.tokens);
}

/// A copy of the left encoding, with its overflow, with the right one appended.
Encoding join_encodings(Encoding left, const Encoding& right) {
  append(left, right);
  return left;
}

template <class Value>
void fill(std::vector<Value>& values, std::size_t length, Side side, const Value& value) {
  const auto missing = length - values.size();
  values.insert(side == Side::left ? values.begin() : values.end(), missing, value);
}

void pad(Encoding& encoding, std::size_t length, const Padding& padding, bool return_tokens) {
  for (auto& part : encoding.overflowing) pad(part, length, padding, return_tokens);
  if (encoding.size() >= length) return;
  const auto side = padding.side;
  fill(encoding.ids, length, side, padding.id);
  fill(encoding.type_ids, length, side, padding.type_id);
  fill<std::int64_t>(encoding.attention_mask, length, side, 0);
  fill<std::int64_t>(encoding.special_tokens_mask, length, side, 1);
  fill(encoding.offsets, length, side, Offsets{});
  fill<std::int32_t>(encoding.word_ids, length, side, -1);
  fill<std::int32_t>(encoding.sequence_ids, length, side, -1);
  if (return_tokens) fill(encoding.tokens, length, side, padding.token);
}

std::size_t longest(std::span<const Encoding> encodings) {
  std::size_t length = 0;
  for (const auto& encoding : encodings) length = std::max(length, encoding.size());
  return length;
}

struct Part {
  std::size_t begin;
  std::size_t end;
};

/// The pieces of a text of `count` tokens, the one that is kept first.
std::vector<Part> parts_of(std::size_t count, std::size_t length, const Truncation& truncation) {
  std::vector<Part> parts;
  const auto step = length - truncation.stride;
  for (std::size_t done = 0;; done += step) {
    const auto end = std::min(done + length, count);
    // With Side::left the pieces are mirrored.
    parts.push_back(truncation.side == Side::right ? Part{done, end} : Part{count - end, count - done});
    if (end == count) return parts;
  }
}

Draft cut_part(const Draft& draft, const Part& part) {
  // Texts of tokens and blanks are not always there.
  const auto cut_list = [&](auto& to, const auto& from) {
    if (!from.empty()) to.assign(from.data() + part.begin, from.data() + part.end);
  };
  Draft result;
  each_list(result.encoding, draft.encoding, cut_list);
  cut_list(result.blanks, draft.blanks);
  return result;
}

struct Lengths {
  std::size_t text;
  std::size_t pair;
};

/// The shorter text is not truncated if it has at most half of the length.
Lengths share(std::size_t text, std::size_t pair, std::size_t length) {
  auto shorter = std::min(text, pair);
  auto longer = shorter > length ? shorter : std::max(shorter, length - shorter);
  if (shorter + longer > length) {
    shorter = length / 2;
    longer = shorter + length % 2;
  }
  return text > pair ? Lengths{longer, shorter} : Lengths{shorter, longer};
}

void truncate_one(Draft& draft, std::size_t excess, std::size_t length, const Truncation& truncation) {
  if (draft.size() <= excess) {
    throw UsageError(
        fmt::format("truncation to {} tokens needs to take {} from a text that has {}: use the strategy "
                    "longest_first or a greater max_length.",
                    length, excess, draft.size()));
  }
  truncate(draft, draft.size() - excess, truncation);
}

/// Texts per range: enough to make the overhead negligible, few enough for all threads to finish together.
constexpr std::size_t kRange = 16;

std::size_t threads_for(std::size_t count, int threads) {
  const auto wanted = threads > 0 ? static_cast<std::size_t>(threads)
                                  : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  return std::min(wanted, (count + kRange - 1) / kRange);
}

}  // namespace

void append(Encoding& encoding, const Encoding& other) {
  // The left side's overflow with the right side and its overflow, then the left side with the right side's
  // overflow.
  std::vector<Encoding> overflowing;
  for (const auto& left : encoding.overflowing) {
    overflowing.push_back(join_encodings(left, other));
    for (const auto& right : other.overflowing) overflowing.push_back(join_encodings(left, right));
  }
  for (const auto& right : other.overflowing) overflowing.push_back(join_encodings(encoding, right));
  each_list(encoding, other,
            [](auto& list, const auto& more) { list.insert(list.end(), more.begin(), more.end()); });
  encoding.overflowing = std::move(overflowing);
}

void append_special(Encoding& encoding, const SpecialToken& token, std::int64_t type_id, bool return_tokens) {
  encoding.ids.push_back(token.id);
  encoding.type_ids.push_back(type_id);
  encoding.attention_mask.push_back(1);
  encoding.special_tokens_mask.push_back(1);
  encoding.offsets.push_back({});
  encoding.word_ids.push_back(-1);
  encoding.sequence_ids.push_back(-1);
  if (return_tokens) encoding.tokens.push_back(token.text);
}

void pad(std::span<Encoding> encodings, const Padding& padding, bool return_tokens) {
  auto length = padding.length ? *padding.length : longest(encodings);
  const auto multiple = padding.multiple_of;
  if (multiple > 0 && length % multiple > 0) length += multiple - length % multiple;
  for (auto& encoding : encodings) pad(encoding, length, padding, return_tokens);
}

void truncate(Draft& draft, std::size_t length, const Truncation& truncation) {
  if (length >= draft.size()) return;
  if (length == 0) {
    Draft empty;
    empty.overflowing.push_back(std::move(draft));
    draft = std::move(empty);
    return;
  }
  if (truncation.stride >= length) {
    throw UsageError(fmt::format(
        "truncation with a stride of {} leaves nothing new in pieces of {} tokens: make it smaller.",
        truncation.stride, length));
  }
  const auto parts = parts_of(draft.size(), length, truncation);
  auto kept = cut_part(draft, parts.front());
  for (std::size_t index = 1; index < parts.size(); ++index) {
    kept.overflowing.push_back(cut_part(draft, parts[index]));
  }
  draft = std::move(kept);
}

void truncate(Draft& text, Draft* pair, std::size_t length, const Truncation& truncation) {
  const auto total = text.size() + (pair == nullptr ? 0 : pair->size());
  if (length == 0) {
    truncate(text, 0, truncation);
    if (pair != nullptr) truncate(*pair, 0, truncation);
  } else if (total <= length) {
    return;
  } else if (truncation.strategy == TruncationStrategy::only_first) {
    truncate_one(text, total - length, length, truncation);
  } else if (truncation.strategy == TruncationStrategy::only_second) {
    if (pair == nullptr) throw UsageError("truncation of the second text only, but there is only one text.");
    truncate_one(*pair, total - length, length, truncation);
  } else if (pair == nullptr) {
    truncate(text, length, truncation);
  } else {
    const auto lengths = share(text.size(), pair->size(), length);
    truncate(text, lengths.text, truncation);
    truncate(*pair, lengths.pair, truncation);
  }
}

void parallel_for(std::size_t count, int threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work) {
  if (threads < 0) {
    throw UsageError(fmt::format("EncodeOptions::threads must be 0 or more, not {}.", threads));
  }
  lockstep::parallel_for(count, kRange, threads_for(count, threads), work);
}

void at_input(std::size_t number, const std::function<void()>& work) {
  const auto location = [number] { return fmt::format("input {} of the batch (from 0): ", number); };
  try {
    work();
  } catch (const DataError& error) {
    throw DataError(location() + error.what());
  } catch (const UsageError& error) {
    throw UsageError(location() + error.what());
  }
}

}  // namespace lockstep::tokenizer
