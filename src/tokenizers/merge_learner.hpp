#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tokenizers/trainers.hpp"

namespace lockstep::tokenizer {

/// A word in UTF-8, and how often it occurs.
using CountedWord = std::pair<std::string, std::uint64_t>;

/// The learned tokens in the order of their ids, and the merged pairs of ids in order.
struct LearntMerges {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
};

/// Byte-pair encoding as the package's BpeTrainer learns it (Sennrich et al. 2016, arXiv:1508.07909):
/// repeatedly merges the most frequent pair of adjacent tokens. The result depends on the order of the words
/// if continuing_subword_prefix or end_of_word_suffix create tokens of characters.
LearntMerges learn_merges(const std::vector<CountedWord>& words, const TrainerOptions& options);

}  // namespace lockstep::tokenizer
