#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class Batch;
class Dataset;

/// How texts become blocks of equal length for a language model.
struct PackingOptions {
  /// Tokens in a block.
  std::int64_t block_size = 1024;
  /// So many samples are joined at a time, and what does not fill a block at their end is left out, as
  /// `datasets.map(group_texts, batched=True, batch_size=...)` does; 0: all of them.
  std::int64_t batch_size = 1000;
  /// Adds `position_ids`, int64: each token's place in its text, or in the piece of it that the block has. A
  /// model that is given them keeps the texts of a block apart: Gpt2LMHeadModel and BertModel do. `labels`
  /// are `separator_id` wherever a place is 0, since nothing before it is of the same text.
  bool return_position_ids = false;
  /// Adds `seq_idx`, int64: the number of each token's text within its block, from 0. Labels as above.
  bool return_seq_idx = false;
  /// What cross_entropy ignores.
  std::int64_t separator_id = -100;
};

/// Joins the samples' sequences (tensors of one dimension), name by name, and cuts them into rows of
/// `block_size`; the rest that does not fill a row is left out. Adds `labels`, a copy of `input_ids`, where
/// there are `input_ids` and no labels: the function group_texts of Hugging Face's examples, and what the
/// options ask for. `batch_size` is not looked at. *Local*. Throws UsageError for a block size below 1,
/// DataError when a sample's sequences have different lengths.
Batch group_texts(const std::vector<Batch>& examples, const PackingOptions& options);

/// group_texts() as a CollateFunction: a batch has as many rows as its samples fill. *Local*. Throws
/// UsageError for a block size below 1.
std::function<Batch(std::vector<Batch>)> pack_collate(PackingOptions options);

/// A whole data set packed into blocks, in order, and held in memory. *Local*; reads the data set once.
/// Throws UsageError for sizes out of range, DataError for samples that do not fit. group_texts() of
/// lockstep/datasets/tokenize.hpp keeps the blocks in files.
std::shared_ptr<const Dataset> packed(const Dataset& dataset, const PackingOptions& options);

}  // namespace lockstep
