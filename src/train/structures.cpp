#include "lockstep/train/structures.hpp"

#include <ATen/ops/cat.h>

#include "lockstep/core/error.hpp"

namespace lockstep::train {

std::int64_t first_size_of(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  }
  throw UsageError("find_batch_size: none of the " + std::to_string(tensors.size()) +
                   " tensors has a dimension.");
}

std::vector<at::Tensor> concatenated(const std::vector<std::vector<at::Tensor>>& parts) {
  if (parts.empty()) throw UsageError("concatenate: there is nothing to join.");
  std::vector<at::Tensor> joined;
  for (std::size_t place = 0; place < parts.front().size(); ++place) {
    std::vector<at::Tensor> pieces;
    for (const auto& part : parts) {
      if (part.size() != parts.front().size()) {
        throw UsageError("concatenate: one collection has " + std::to_string(parts.front().size()) +
                         " tensors and another " + std::to_string(part.size()) + ".");
      }
      pieces.push_back(part[place]);
    }
    joined.push_back(at::cat(pieces));
  }
  return joined;
}

}  // namespace lockstep::train
