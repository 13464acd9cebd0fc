#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lockstep::comm {

/// Copies on the host of tensors that lie on a GPU; a tensor of the CPU stands for itself. They are made when
/// the GPU's stream of the calling thread has computed them.
class HostCopies {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    pairs_.emplace_back(tensor, tensor.cpu());
    return pairs_.back().second;
  }
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    copies.reserve(tensors.size());
    for (const auto& tensor : tensors) copies.push_back(of(tensor));
    return copies;
  }
  std::vector<std::vector<at::Tensor>> of(const std::vector<std::vector<at::Tensor>>& lists) {
    std::vector<std::vector<at::Tensor>> copies;
    for (const auto& list : lists) copies.push_back(of(list));
    return copies;
  }

  /// The results go to the GPU.
  void copy_back() const {
    for (const auto& [tensor, copy] : pairs_) tensor.detach().copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

}  // namespace lockstep::comm
