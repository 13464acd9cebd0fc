#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class Batch;
class Dataset;

/// How texts are packed into blocks of equal length for a language model.
struct PackingOptions {
  /// Tokens per block.
  std::int64_t block_size = 1024;
  /// Number of samples that are concatenated at a time; the remainder that does not fill a block is dropped,
  /// as in `datasets.map(group_texts, batched=True, batch_size=...)`. 0: all samples.
  std::int64_t batch_size = 1000;
  /// Adds `position_ids`, int64: each token's position in its text, or in the part of it that is in the
  /// block. With these, Gpt2LMHeadModel and BertModel keep the texts of a block apart. `labels` are
  /// `separator_id` at every position 0, because no token before it is of the same text.
  bool return_position_ids = false;
  /// Adds `seq_idx`, int64: the number of each token's text within its block, from 0. Labels as above.
  bool return_seq_idx = false;
  /// The label that cross_entropy ignores.
  std::int64_t separator_id = -100;
};

/// Concatenates the samples' sequences (tensors of one dimension), name by name, and splits them into rows of
/// `block_size`; the remainder is dropped. Adds `labels`, a copy of `input_ids`, if there are `input_ids` but
/// no labels, and what the options ask for. The counterpart of group_texts in Hugging Face's examples.
/// `batch_size` is only validated. *Local*. Throws UsageError for sizes out of range or no samples, DataError
/// if a sample's sequences have different lengths, or samples have different names or dtypes.
Batch group_texts(const std::vector<Batch>& examples, const PackingOptions& options);

/// group_texts() as a CollateFunction: a batch has as many rows as its samples fill. *Local*. Throws
/// UsageError for sizes out of range.
std::function<Batch(std::vector<Batch>)> pack_collate(PackingOptions options);

/// Packs a whole data set into blocks, in order, in memory. *Local*; reads the data set once. Throws
/// UsageError for sizes out of range or an empty data set, DataError for samples that cannot be packed.
/// group_texts() of lockstep/datasets/tokenize.hpp stores the blocks in files.
std::shared_ptr<const Dataset> packed(const Dataset& dataset, const PackingOptions& options);

}  // namespace lockstep
