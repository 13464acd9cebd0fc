#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::models {

struct InBatchNegativesOptions {
  /// Scores are multiplied by it: 1 / temperature.
  double scale = 20;
  /// The score of two texts is the cosine of their vectors; otherwise their dot product.
  bool cosine = true;
  /// The mean of this loss and that of the other direction: the query that belongs to a document among all
  /// queries.
  bool symmetric = false;
};

/// The contrastive loss of pairs: for each query, the cross entropy of its own document among the documents
/// of the whole batch, which are the negatives of the others (InfoNCE; sentence-transformers'
/// MultipleNegativesRankingLoss and, with `symmetric`, MultipleNegativesSymmetricRankingLoss).
///
///     const models::InBatchNegatives contrast(group);
///     contrast({encoder(queries), encoder(documents)}).backward();
///
/// With a group, the batch is that of all ranks: each rank compares its queries with the documents of all,
/// and the gradients of its documents are those of all ranks' queries. With DistributedDataParallel, which
/// takes the mean over the ranks, N ranks then train as one rank with N times the batch, up to the rounding
/// of products of other shapes.
class InBatchNegatives {
 public:
  /// One rank. *Local*. Throws UsageError unless `scale` is positive.
  explicit InBatchNegatives(const InBatchNegativesOptions& options = {});
  /// All ranks of the group, which the loss shares.
  explicit InBatchNegatives(const ProcessGroup& group, const InBatchNegativesOptions& options = {});

  /// `embeddings`: [rows, width] of the queries, of their documents, and of any number of hard negatives for
  /// each row, which are negatives for all queries. Returns the mean over this rank's rows, a scalar. All
  /// ranks need the same shapes. *Collective* with a group, as is its backward. Throws UsageError for fewer
  /// than two tensors and for different shapes.
  at::Tensor operator()(const std::vector<at::Tensor>& embeddings) const;

 private:
  at::Tensor of_all_ranks(const at::Tensor& rows) const;

  InBatchNegativesOptions options_;
  std::optional<ProcessGroup> group_;
};

}  // namespace lockstep::models
