#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// How samples become a batch. Called from several worker threads at once, so it must not change shared
/// state.
using CollateFunction = std::function<Batch(std::vector<Example>)>;

/// Stacks the samples by name: tensors of shape [d...] become one of shape [samples, d...], names in the
/// order of the first sample, and the samples' texts and `indices` one after another. *Local*; safe from
/// several threads. Throws DataError, naming the sample (by its data-set index where the sample knows it,
/// else by its place) and both sides, when a sample's names, shape, dtype or device differ from the first
/// sample's; UsageError without samples.
Batch default_collate(std::vector<Example> examples);

/// default_collate(), but that the tensors called `names`, of one dimension or more, are joined along their
/// first one and not stacked, with `<name>_offsets` beside each: see Batch. For torch::nn::EmbeddingBag with
/// include_last_offset, and kernels that need no padding. *Local*. Errors as default_collate; the function
/// throws DataError for a sample without one of the names or with a scalar.
CollateFunction jagged_collate(std::vector<std::string> names);

/// How sequences of different lengths become one tensor. The names are those of Hugging Face's tokenizers.
struct PaddingCollateOptions {
  /// What fills `input_ids`; the tokenizer's pad token.
  std::int64_t pad_token_id = 0;
  /// Whether the fill stands behind the sequence or before it.
  enum class Side { right, left } side = Side::right;
  /// The length is rounded up to a multiple of this; 8 or 64 lets GPUs use their tensor cores.
  std::int64_t pad_to_multiple_of = 1;
  /// What fills `labels` that are sequences; -100 is what cross_entropy ignores.
  std::int64_t label_pad_token_id = -100;
  /// What fills `token_type_ids`. Every other sequence is filled with 0, but special_tokens_mask with 1.
  std::int64_t pad_token_type_id = 0;
  /// Which tensors have a number for each token. `labels` of no dimension are one label for the sample.
  std::vector<std::string> names = {"input_ids",           "attention_mask", "token_type_ids",
                                    "special_tokens_mask", "position_ids",   "labels"};
};

/// A collate function that pads the sequences (tensors of one dimension) to the longest of their batch, as
/// Hugging Face's DataCollatorWithPadding and, for sequences of labels, DataCollatorForTokenClassification
/// do: `attention_mask` is added where the samples have `input_ids` only, and `label` or `label_ids` becomes
/// `labels`. Other tensors are stacked. *Local*. Throws UsageError for a multiple below 1. The
/// function throws DataError as default_collate does where names or dtypes differ.
CollateFunction pad_collate(PaddingCollateOptions options = {});

/// pad_collate() for causal language models: samples without `labels` get a copy of their `input_ids`, with
/// `label_pad_token_id` where the batch is filled up; samples with labels keep them, so that a prompt may be
/// -100. As Hugging Face's DataCollatorForLanguageModeling(mlm=False), but that a pad token inside a text
/// counts: models that end a text with their pad token learn to end it. *Local*. Errors as pad_collate; the
/// function throws DataError for a sample without input_ids.
CollateFunction causal_lm_collate(PaddingCollateOptions options = {});

/// What flatten_collate() adds to its one row; names and defaults of transformers'
/// DataCollatorWithFlattening.
struct FlatteningOptions {
  bool return_position_ids = true;
  /// The number of each token's sample, as `seq_idx`.
  bool return_seq_idx = false;
  /// The label of each sample's first token, which no other predicts.
  std::int64_t separator_id = -100;
};

/// A collate function that joins the samples' sequences to one row, [1, tokens], without padding, for a model
/// that keeps the texts apart by their `position_ids`, which begin anew with each sample: `input_ids`, and
/// `labels`, the samples' own or a copy of input_ids. Other tensors are left out. transformers'
/// DataCollatorWithFlattening. *Local*. The function throws DataError for a sample without input_ids, or with
/// labels of another length.
CollateFunction flatten_collate(FlatteningOptions options = {});

}  // namespace lockstep
