#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.hpp"

namespace lockstep {

/// How tokens are masked for masked language modeling: transformers' DataCollatorForLanguageModeling.
struct MaskingOptions {
  /// The id of the token that stands for a masked one, and how many tokens the vocabulary has.
  std::int64_t mask_token_id = 0;
  std::int64_t vocab_size = 0;
  /// How probably a token, or a word, is to be predicted.
  double mlm_probability = 0.15;
  /// Of these, what becomes the mask token, and what a random token; the rest stays as it is.
  double mask_replace_prob = 0.8;
  double random_replace_prob = 0.1;
  /// Whole words are masked or not: DataCollatorForWholeWordMask, or whole_word_mask=True.
  bool whole_word_mask = false;
  /// Tokens that are never masked, where a sample has no `special_tokens_mask`.
  std::vector<std::int64_t> special_token_ids = {};
};

/// A text with masks, and what is to be predicted.
struct MaskedTokens {
  at::Tensor input_ids;
  /// As input_ids; -100 where nothing was masked.
  at::Tensor labels;
};

/// Masks tokens: int64 on the CPU, of any shape. `keep`: of the same shape, not 0 for tokens that are never
/// masked. `word_ids`, needed for whole words: of the same shape, the number of each token's word as
/// tokenizer::Encoding gives it, -1 for none; tokens of one word stand side by side in the last dimension.
/// Draws what transformers' torch_mask_tokens draws from such a generator, so the results are the same.
/// *Local*. Throws UsageError for probabilities out of range, a mask token or vocabulary that is none, and
/// tensors of other shapes.
MaskedTokens mask_tokens(const at::Tensor& input_ids, const at::Tensor& keep, const MaskingOptions& options,
                         const at::Generator& generator, const at::Tensor& word_ids = {});

/// `dataset` with `input_ids` masked anew in each epoch, and `labels`. What is drawn for a sample depends on
/// its SampleContext alone: not on its batch, workers or ranks, and is the same after a resume. Takes
/// `special_tokens_mask` and `word_ids` out of the samples where they are there; for whole words `word_ids`
/// must be. pad_collate() fills up what has different lengths. *Local*. Throws UsageError as mask_tokens.
std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> dataset, MaskingOptions options);

}  // namespace lockstep
