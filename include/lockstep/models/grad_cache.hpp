#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep::models {

struct GradCacheOptions {
  /// Rows that are encoded at a time.
  std::int64_t chunk_rows = 32;
  /// Called before each encoding with a graph; what it returns lives until the chunk's backward has ended.
  /// `is_last`: it is the last one of the batch. With DistributedDataParallel, return the guard of no_sync()
  /// unless it is:
  ///
  ///     .around_chunk = [&](bool is_last) -> std::shared_ptr<void> {
  ///       return is_last ? nullptr : std::make_shared<decltype(ddp.no_sync())>(ddp.no_sync());
  ///     }
  std::function<std::shared_ptr<void>(bool is_last)> around_chunk = {};
  /// The backward of a chunk; by default that of the scalar that it is given. An Accelerator's, for example.
  std::function<void(const at::Tensor& scalar)> backward = {};
};

/// Batches of any size for a loss that compares all of their rows, in the memory of a few rows (GradCache,
/// Gao et al., 2021; sentence-transformers' CachedMultipleNegativesRankingLoss): chunks are first encoded
/// without a graph, the loss gives the gradients of the embeddings, and each chunk is encoded again, with a
/// graph and the same random numbers (dropout), to take its embeddings' gradients on to the parameters.
///
///     const models::GradCache cache({.chunk_rows = 32});
///     const at::Tensor loss = cache.backward({queries, documents}, encode, contrast);
///     optimizer.step();
///
/// The gradients are those of one backward through the whole batch, up to the rounding of their sums.
class GradCache {
 public:
  using Encode = std::function<at::Tensor(const Batch& chunk)>;
  using LossOf = std::function<at::Tensor(const std::vector<at::Tensor>& embeddings)>;

  /// Throws UsageError unless chunk_rows is positive.
  explicit GradCache(GradCacheOptions options);

  /// Adds the gradients of `loss(encode(batch) for each of the batches)` to the parameters, and returns the
  /// loss without a graph. `batches`: queries, documents and so on; each tensor has the batch's rows first.
  /// *Collective* if the loss or the encoder is. Throws UsageError for a batch without rows.
  at::Tensor backward(const std::vector<Batch>& batches, const Encode& encode, const LossOf& loss) const;

 private:
  GradCacheOptions options_;
};

}  // namespace lockstep::models
