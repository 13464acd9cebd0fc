#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep::train {

/// Finds a callback that does between two steps what recoveries do not repeat on all ranks. Made before its
/// event, it compares what is cheap to compare: the operations begun by this rank, learning rates, versions
/// of weights, and the state of the CPU's generator. *Local*.
class CallbackWatch {
 public:
  CallbackWatch(const ProcessGroup& group, torch::optim::Optimizer& optimizer);
  /// "communicated", "set a learning rate"; "" if it has done nothing of that.
  std::string what_was_done() const;

 private:
  std::vector<double> rates() const;
  std::uint64_t weights() const;

  const ProcessGroup& group_;
  torch::optim::Optimizer& optimizer_;
  std::uint64_t operations_;
  std::vector<double> rates_;
  std::uint64_t weights_;
  at::Tensor generator_;
};

/// The class of a callback as the program has named it.
std::string class_of(const TrainerCallback& callback);

}  // namespace lockstep::train
