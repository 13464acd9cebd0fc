#include <algorithm>

#include "encoding.hpp"

namespace lockstep::tokenizer {
namespace {

template <class Value>
void fill(std::vector<Value>& values, std::size_t length, Side side, Value value) {
  const auto missing = length - values.size();
  values.insert(side == Side::left ? values.begin() : values.end(), missing, value);
}

void pad(Encoding& encoding, std::size_t length, const Padding& padding) {
  for (auto& part : encoding.overflowing) pad(part, length, padding);
  if (encoding.size() >= length) return;
  const auto side = padding.side;
  fill(encoding.ids, length, side, padding.id);
  fill(encoding.type_ids, length, side, padding.type_id);
  fill<std::int64_t>(encoding.attention_mask, length, side, 0);
  fill<std::int64_t>(encoding.special_tokens_mask, length, side, 1);
  fill(encoding.offsets, length, side, Offsets{});
  fill<std::int32_t>(encoding.word_ids, length, side, -1);
  fill<std::int32_t>(encoding.sequence_ids, length, side, -1);
}

std::size_t longest(std::span<const Encoding> encodings) {
  std::size_t length = 0;
  for (const auto& encoding : encodings) length = std::max(length, encoding.size());
  return length;
}

}  // namespace

void pad(std::span<Encoding> encodings, const Padding& padding) {
  auto length = padding.length ? *padding.length : longest(encodings);
  const auto multiple = padding.multiple_of;
  if (multiple > 0 && length % multiple > 0) length += multiple - length % multiple;
  for (auto& encoding : encodings) pad(encoding, length, padding);
}

}  // namespace lockstep::tokenizer
