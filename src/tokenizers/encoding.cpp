#include "encoding.hpp"

namespace lockstep::tokenizer {
namespace {

template <class Value>
void extend(std::vector<Value>& values, const std::vector<Value>& others) {
  values.insert(values.end(), others.begin(), others.end());
}

void append_tokens(Encoding& encoding, const Encoding& other) {
  extend(encoding.ids, other.ids);
  extend(encoding.type_ids, other.type_ids);
  extend(encoding.attention_mask, other.attention_mask);
  extend(encoding.special_tokens_mask, other.special_tokens_mask);
  extend(encoding.offsets, other.offsets);
  extend(encoding.word_ids, other.word_ids);
  extend(encoding.sequence_ids, other.sequence_ids);
}

/// A copy of the left one, with its overflow, to which the right one was appended.
Encoding joined(Encoding left, const Encoding& right) {
  append(left, right);
  return left;
}

}  // namespace

void append(Encoding& encoding, const Encoding& other) {
  // The overflow of the left side with the right side and its overflow, then the left side with the right
  // one's.
  std::vector<Encoding> overflowing;
  for (const auto& left : encoding.overflowing) {
    overflowing.push_back(joined(left, other));
    for (const auto& right : other.overflowing) overflowing.push_back(joined(left, right));
  }
  for (const auto& right : other.overflowing) overflowing.push_back(joined(encoding, right));
  append_tokens(encoding, other);
  encoding.overflowing = std::move(overflowing);
}

void append_special(Encoding& encoding, std::int64_t id, std::int64_t type_id) {
  encoding.ids.push_back(id);
  encoding.type_ids.push_back(type_id);
  encoding.attention_mask.push_back(1);
  encoding.special_tokens_mask.push_back(1);
  encoding.offsets.push_back({});
  encoding.word_ids.push_back(-1);
  encoding.sequence_ids.push_back(-1);
}

}  // namespace lockstep::tokenizer
