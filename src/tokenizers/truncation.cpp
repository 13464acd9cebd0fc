#include <algorithm>
#include <string>

#include "encoding.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

struct Part {
  std::size_t begin;
  std::size_t end;
};

/// The pieces of a text of `count` tokens, the one to keep first.
std::vector<Part> parts_of(std::size_t count, std::size_t length, const Truncation& truncation) {
  std::vector<Part> parts;
  const auto step = length - truncation.stride;
  for (std::size_t done = 0;; done += step) {
    const auto end = std::min(done + length, count);
    // From the right the same pieces, mirrored.
    parts.push_back(truncation.side == Side::right ? Part{done, end} : Part{count - end, count - done});
    if (end == count) return parts;
  }
}

template <class Value>
void cut(const std::vector<Value>& from, const Part& part, std::vector<Value>& to) {
  if (from.empty()) return;
  const auto begin = from.begin();
  to.assign(begin + static_cast<std::ptrdiff_t>(part.begin), begin + static_cast<std::ptrdiff_t>(part.end));
}

Draft cut(const Draft& draft, const Part& part) {
  Draft result;
  const auto& from = draft.encoding;
  auto& to = result.encoding;
  cut(from.ids, part, to.ids);
  cut(from.type_ids, part, to.type_ids);
  cut(from.attention_mask, part, to.attention_mask);
  cut(from.special_tokens_mask, part, to.special_tokens_mask);
  cut(from.offsets, part, to.offsets);
  cut(from.word_ids, part, to.word_ids);
  cut(from.sequence_ids, part, to.sequence_ids);
  cut(draft.blanks, part, result.blanks);
  return result;
}

struct Lengths {
  std::size_t text;
  std::size_t pair;
};

/// The shorter text keeps its tokens as long as they are no more than half of what there is room for.
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
    throw UsageError("truncation to " + std::to_string(length) + " tokens needs to take " +
                     std::to_string(excess) + " from a text that has " + std::to_string(draft.size()) +
                     ": use the strategy longest_first or a greater max_length.");
  }
  truncate(draft, draft.size() - excess, truncation);
}

}  // namespace

void truncate(Draft& draft, std::size_t length, const Truncation& truncation) {
  if (length >= draft.size()) return;
  if (length == 0) {
    Draft empty;
    empty.overflowing.push_back(std::move(draft));
    draft = std::move(empty);
    return;
  }
  if (truncation.stride >= length) {
    throw UsageError("truncation with a stride of " + std::to_string(truncation.stride) +
                     " leaves nothing new in pieces of " + std::to_string(length) +
                     " tokens: make it smaller.");
  }
  const auto parts = parts_of(draft.size(), length, truncation);
  auto kept = cut(draft, parts.front());
  for (std::size_t place = 1; place < parts.size(); ++place) {
    kept.overflowing.push_back(cut(draft, parts[place]));
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

}  // namespace lockstep::tokenizer
