#include "lockstep/models/embedding.hpp"

#include <ATen/ATen.h>

namespace lockstep::models {

at::Tensor EmbeddingImpl::forward(const at::Tensor& ids) {
  const at::Tensor rows = torch::nn::EmbeddingImpl::forward(ids);
  const at::Tensor added = added_to_rows(ids, options.padding_idx().value_or(-1));
  return added.defined() ? (rows + added).to(rows.scalar_type()) : rows;
}

}  // namespace lockstep::models
