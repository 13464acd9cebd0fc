#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace lockstep::comm {

/// What a backend offers beside c10d's interface when it can reduce in the thread that calls. Nothing is made
/// to wait for, which takes as long as the operation itself where that is small.
class AllReducesNow {
 public:
  virtual ~AllReducesNow() = default;
  /// Of a dense tensor in one piece, in the backend's order of operations.
  virtual void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
};

}  // namespace lockstep::comm
