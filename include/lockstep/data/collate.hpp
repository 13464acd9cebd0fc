#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Combines samples into a batch. Called from several worker threads at once, so it must not modify shared
/// state.
using CollateFunction = std::function<Batch(std::vector<Example>)>;

/// Stacks the samples by name: tensors of shape [d...] become one of shape [samples, d...], in the order of
/// the first sample's names. The samples' texts and `indices` are concatenated. *Local*; thread-safe. Throws
/// DataError if a sample's names, shape, dtype or device differ from the first sample's; the error shows both
/// and identifies the sample by its data-set index if it has one, otherwise by its position. Throws
/// UsageError without samples.
Batch default_collate(std::vector<Example> examples);

/// Like default_collate(), but concatenates the tensors called `names` (one dimension or more) along their
/// first dimension instead of stacking them, and adds `<name>_offsets` for each: see Batch. For
/// torch::nn::EmbeddingBag with include_last_offset, and for kernels that need no padding. *Local*. Errors as
/// default_collate; the function throws DataError for a sample without one of the names, with a scalar, or
/// with another dtype or other dimensions behind the first.
CollateFunction jagged_collate(std::vector<std::string> names);

/// Options for padding sequences of different lengths. The names are those of Hugging Face's tokenizers.
struct PaddingCollateOptions {
  /// Padding of `input_ids`: the tokenizer's pad token.
  std::int64_t pad_token_id = 0;
  /// Whether the padding follows or precedes the sequence.
  enum class Side { right, left } side = Side::right;
  /// The length is rounded up to a multiple of this; 8 or 64 lets GPUs use their tensor cores.
  std::int64_t pad_to_multiple_of = 1;
  /// Padding of `labels` that are sequences; cross_entropy ignores -100.
  std::int64_t label_pad_token_id = -100;
  /// Padding of `token_type_ids`. Other sequences are padded with 0, special_tokens_mask with 1.
  std::int64_t pad_token_type_id = 0;
  /// Tensors with one number per token. Scalar `labels` are one label for the whole sample.
  std::vector<std::string> names = {"input_ids",           "attention_mask", "token_type_ids",
                                    "special_tokens_mask", "position_ids",   "labels"};
};

/// A collate function that pads the sequences (tensors of one dimension) to the longest of their batch, like
/// Hugging Face's DataCollatorWithPadding and, for sequences of labels, DataCollatorForTokenClassification:
/// adds `attention_mask` if the samples have only `input_ids`, and renames `label` or `label_ids` to
/// `labels`. Sequences of integers or booleans become int64. Other tensors are stacked. *Local*. Throws
/// UsageError for a multiple below 1. The function throws DataError as default_collate does if names or
/// dtypes differ.
CollateFunction pad_collate(PaddingCollateOptions options = {});

/// pad_collate() for causal language models. Samples without `labels` get a copy of their `input_ids`, padded
/// with `label_pad_token_id`; samples with labels keep them. Leaves out `special_tokens_mask`, and adds no
/// `attention_mask` to packed texts, which have `position_ids`: padding is texts no longer than theirs. Unlike
/// with DataCollatorForLanguageModeling, a pad token inside a text counts, so that models learn to end it.
/// *Local*. Errors as pad_collate; the function throws DataError for a sample without input_ids, and for a
/// batch of which no token is trained on: all labels behind the first are `label_pad_token_id`.
CollateFunction causal_lm_collate(PaddingCollateOptions options = {});

/// What flatten_collate() adds to its single row; names and defaults of transformers'
/// DataCollatorWithFlattening.
struct FlatteningOptions {
  bool return_position_ids = true;
  /// Adds `seq_idx`: the number of each token's sample.
  bool return_seq_idx = false;
  /// Label of each sample's first token, which no other token predicts.
  std::int64_t separator_id = -100;
};

/// A collate function that concatenates the samples' sequences into one row, [1, tokens], without padding,
/// for a model that separates the texts by their `position_ids`, which restart at each sample. The batch has
/// `input_ids` and `labels` (the samples' own, or a copy of input_ids), int64. Empty samples and other
/// tensors are left out. The counterpart of transformers' DataCollatorWithFlattening. *Local*. The function
/// throws DataError for a sample without input_ids, or with labels of another length, if all samples are
/// empty, and if all labels are `separator_id`: of such a batch, no token is trained on.
CollateFunction flatten_collate(FlatteningOptions options = {});

}  // namespace lockstep
