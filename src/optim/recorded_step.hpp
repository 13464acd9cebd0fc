#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <vector>

#include "comm/cuda/graph_replays.hpp"

// Steps of optimizers that are recorded in a CUDA graph. Its kernels read the numbers that change from step
// to step on the device, where they are written before each replay.
namespace lockstep::optim {

/// What the host does before the replays of the graph that a step of these parameters is recorded in; null if
/// it is not recorded.
comm::GraphReplays* recorded_for(const std::vector<at::Tensor>& parameters);

/// Throws UsageError if a step of this optimizer is being recorded, but is not one of FusedOptimizer.
void check_recordable(torch::optim::Optimizer& optimizer);

/// Calls `step` with the learning rate. If the step is recorded, that is a tensor with its value at each
/// replay, which the kernels read as float32, as those of torch.optim do if `lr` is a tensor. `lr` must live
/// as long as the graph.
template <class Step>
void with_rate(comm::GraphReplays* replays, const double& lr, const Step& step) {
  if (replays == nullptr) return step(lr);
  step(replays->number([&lr] { return lr; }));
}

/// A first step makes the optimizer's state, which each replay would make anew.
[[noreturn]] void refuse_first_step();

}  // namespace lockstep::optim
