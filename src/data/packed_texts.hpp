#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// The positions of the tokens of blocks in their texts.
struct PackedTexts {
  std::vector<std::int64_t> position_ids;
  std::vector<std::int64_t> seq_idx;
};

/// Computes them for the tokens that fill blocks of `block_size`. `ends`: the end of each text in the
/// concatenated tokens.
inline PackedTexts packed_texts(std::span<const std::int64_t> ends, std::int64_t block_size) {
  PackedTexts texts;
  const auto tokens = ends.empty() ? 0 : ends.back() / block_size * block_size;
  std::int64_t position = 0, number = 0;
  auto end = ends.begin();
  for (std::int64_t token = 0; token < tokens; ++token) {
    const bool in_next_text = token >= *end;
    // Skips empty texts.
    while (token >= *end) ++end;
    if (in_next_text) position = 0, ++number;
    if (token % block_size == 0) position = number = 0;
    texts.position_ids.push_back(position++);
    texts.seq_idx.push_back(number);
  }
  return texts;
}

}  // namespace lockstep::data
