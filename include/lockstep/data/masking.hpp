#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.hpp"

namespace lockstep {

/// Options of masked language modeling, as in transformers' DataCollatorForLanguageModeling.
struct MaskingOptions {
  /// The id of the mask token, and the number of tokens in the vocabulary.
  std::int64_t mask_token_id = 0;
  std::int64_t vocab_size = 0;
  /// Probability that a token (or word) is to be predicted.
  double mlm_probability = 0.15;
  /// Of these tokens, the fractions replaced by the mask token and by a random token; the rest is unchanged.
  double mask_replace_prob = 0.8;
  double random_replace_prob = 0.1;
  /// Mask whole words, each token as the two probabilities say. transformers 5 always uses a
  /// mask_replace_prob of 1 for whole words, and takes tokens whose offsets touch for a word.
  bool whole_word_mask = false;
  /// Tokens that are never masked, used if a sample has no `special_tokens_mask`.
  std::vector<std::int64_t> special_token_ids = {};
};

/// Masked tokens, and the labels to predict.
struct MaskedTokens {
  at::Tensor input_ids;
  /// Shape of input_ids; -100 for tokens that are not to be predicted.
  at::Tensor labels;
};

/// Masks tokens: int64 on the CPU, of any shape. `keep` has the same shape and is nonzero for tokens that are
/// never masked. `word_ids`, required for whole words, has the same shape: the number of each token's word as
/// tokenizer::Encoding gives it, -1 for none; the tokens of a word are adjacent in the last dimension. Makes
/// the same draws as transformers' torch_mask_tokens with such a generator, so the results are the same.
/// *Local*. Throws UsageError for probabilities out of range, an invalid mask token or vocabulary size, and
/// tensors of other shapes.
MaskedTokens mask_tokens(const at::Tensor& input_ids, const at::Tensor& keep, const MaskingOptions& options,
                         const at::Generator& generator, const at::Tensor& word_ids = {});

/// `dataset` with `input_ids` masked anew in each epoch, and `labels`. Random draws for a sample depend only
/// on its SampleContext: not on its batch, workers or ranks, and they are the same after resuming. Tokens
/// whose `attention_mask` is 0 are padding: never masked, and without draws of their own. Removes
/// `special_tokens_mask` and `word_ids` from the samples if present; whole words require `word_ids`.
/// pad_collate() pads sequences of different lengths. *Local*. Throws UsageError as mask_tokens.
std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> dataset, MaskingOptions options);

}  // namespace lockstep
