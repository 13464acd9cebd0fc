#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/cuda/graph_replays.hpp"

namespace lockstep::optim {

/// The steps that the device has left out since the host last asked. Until then the host counts all steps as
/// made, and the kernels take off those that were not.
class SkippedSteps {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// Whether steps of these parameters can be added to those since the last take().
  bool are_of(const Tensors& parameters) const;
  /// Since the last take().
  bool has_any() const noexcept { return steps_ > 0; }
  const Tensors& parameters() const noexcept { return parameters_; }

  /// How many of the steps before this one were left out, as a float32 scalar of the device. Throws
  /// UsageError if the step is recorded in a CUDA graph and is the first one that the device may leave out.
  at::Tensor count_on(const at::Device& device, const comm::GraphReplays* replays);
  /// The end of a step of these parameters. `found_inf` is 0 or 1. `self` keeps this object for the replays.
  void add(const Tensors& parameters, const at::Tensor& found_inf, comm::GraphReplays* replays,
           const std::shared_ptr<SkippedSteps>& self);

  /// Their number; begins anew. Waits for the device.
  std::int64_t take();

 private:
  Tensors parameters_;
  /// Those of the parameters' devices, which have the same values.
  std::map<std::string, at::Tensor> counts_;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep::optim
