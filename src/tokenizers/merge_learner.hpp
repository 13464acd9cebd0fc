#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tokenizers/trainers.hpp"

namespace lockstep::tokenizer {

/// A word of a text in UTF-8, and how often it was there.
using CountedWord = std::pair<std::string, std::uint64_t>;

/// What BPE learns: tokens by their ids, and the pairs of ids that become one, in their order.
struct LearntMerges {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
};

/// Byte pair encoding as the package's BpeTrainer learns it (Sennrich et al. 2016, arXiv:1508.07909): the
/// most frequent pair of neighbours becomes a token, again and again. The result depends on the words' order
/// where continuing_subword_prefix or end_of_word_suffix make tokens of characters.
LearntMerges learn_merges(const std::vector<CountedWord>& words, const TrainerOptions& options);

}  // namespace lockstep::tokenizer
