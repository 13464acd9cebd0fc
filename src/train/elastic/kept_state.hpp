#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/optim/lr_scheduler.hpp"

namespace lockstep::train {

/// What changes between a commit and the next step of the optimizers: buffers (batch norm's statistics), the
/// positions of loaders, and what is done once in an epoch, steps of schedulers and learning rates that are
/// set. Kept aside at the beginning of each step, it undoes a step that failed. *Local*; one thread.
class KeptState {
 public:
  struct Parts {
    std::vector<at::Tensor> buffers = {};
    std::vector<DataLoader::Position> loaders = {};
    std::vector<optim::Scheduler*> schedulers = {};
    std::vector<torch::optim::Optimizer*> optimizers = {};
  };
  /// The parts must outlive it.
  explicit KeptState(Parts parts) : parts_(std::move(parts)) {}

  void keep();
  /// Puts back what keep() has found; what has changed since is lost.
  void restore() const;
  /// Whether a loader was moved back since keep(), and none forward: "loader #1 from epoch 2, sample 8, to
  /// epoch 0, sample 4"; otherwise "".
  std::string moved_back() const;

 private:
  Parts parts_;
  std::vector<at::Tensor> values_;
  std::vector<DataLoaderState> positions_;
  std::vector<std::string> schedules_;
  /// Of each optimizer's parameter groups.
  std::vector<std::vector<double>> rates_;
};

}  // namespace lockstep::train
