#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "lockstep/data/data_loader.hpp"

namespace lockstep::train {

/// What a step changes before its optimizers do: buffers (batch norm's statistics), and the positions of
/// loaders. Kept aside at the beginning of each step, it undoes a step that failed. *Local*; one thread.
class KeptState {
 public:
  KeptState(std::vector<at::Tensor> buffers, std::vector<DataLoader::Position> loaders)
      : buffers_(std::move(buffers)), loaders_(std::move(loaders)) {}

  void keep();
  /// Puts back what keep() has found; what has changed since is lost.
  void restore() const;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<DataLoader::Position> loaders_;
  std::vector<at::Tensor> values_;
  std::vector<DataLoaderState> positions_;
};

}  // namespace lockstep::train
