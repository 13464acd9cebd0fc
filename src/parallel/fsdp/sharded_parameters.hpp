#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// The parameters of this process that are fully sharded, whatever has become of their wrappers: nobody may
/// wrap them once more. Any thread.
class ShardedParameters {
 public:
  static void add(const at::Tensor& parameter);
  static void remove(const at::Tensor& parameter);
  static bool contain(const at::Tensor& tensor);
};

}  // namespace lockstep::parallel
