#include "lockstep/models/in_batch_negatives.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>

#include "lockstep/comm/collectives_with_gradients.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

void check_loss_options(const InBatchNegativesOptions& options) {
  if (options.scale > 0) return;
  throw UsageError(fmt::format("InBatchNegatives: scale is {}, expected more than 0", options.scale));
}

void check_embeddings(const std::vector<at::Tensor>& embeddings) {
  if (embeddings.size() < 2) {
    throw UsageError(
        fmt::format("InBatchNegatives takes the embeddings of queries, documents and any hard negatives; got "
                    "{} tensor(s)",
                    embeddings.size()));
  }
  for (const auto& rows : embeddings) {
    const bool fits = rows.dim() == 2 && rows.size(0) > 0 && rows.sizes() == embeddings[0].sizes();
    if (fits) continue;
    throw UsageError(
        fmt::format("InBatchNegatives takes embeddings [rows, width] of one shape; got {} and {}",
                    c10::str(embeddings[0].sizes()), c10::str(rows.sizes())));
  }
}

/// In float32 at least: 16 bits are too few for scores that are compared.
at::Tensor comparable(const at::Tensor& rows, bool cosine) {
  const at::Tensor wide = rows.scalar_type() == at::kDouble ? rows : rows.to(at::kFloat);
  return cosine ? wide / wide.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12) : wide;
}

/// The mean cross entropy of each row's own column: the first row's is `first`.
at::Tensor loss_of_rows(const at::Tensor& rows, const at::Tensor& columns, double scale, std::int64_t first) {
  const at::Tensor own = at::arange(first, first + rows.size(0), rows.options().dtype(at::kLong));
  return torch::nn::functional::cross_entropy(rows.matmul(columns.t()) * scale, own);
}

}  // namespace

InBatchNegatives::InBatchNegatives(const InBatchNegativesOptions& options) : options_(options) {
  check_loss_options(options);
}

InBatchNegatives::InBatchNegatives(const ProcessGroup& group, const InBatchNegativesOptions& options)
    : options_(options), group_(group) {
  check_loss_options(options);
}

at::Tensor InBatchNegatives::of_all_ranks(const at::Tensor& rows) const {
  return group_ && group_->size() > 1 ? all_gather_with_gradients(*group_, rows) : rows;
}

at::Tensor InBatchNegatives::operator()(const std::vector<at::Tensor>& embeddings) const {
  check_embeddings(embeddings);
  std::vector<at::Tensor> own, documents;
  for (const auto& rows : embeddings) own.push_back(comparable(rows, options_.cosine));
  for (std::size_t i = 1; i < own.size(); ++i) documents.push_back(of_all_ranks(own[i]));
  const std::int64_t first = group_ ? group_->rank() * own[0].size(0) : 0;
  const at::Tensor forward = loss_of_rows(own[0], at::cat(documents), options_.scale, first);
  if (!options_.symmetric) return forward;
  return (forward + loss_of_rows(own[1], of_all_ranks(own[0]), options_.scale, first)) / 2;
}

}  // namespace lockstep::models
