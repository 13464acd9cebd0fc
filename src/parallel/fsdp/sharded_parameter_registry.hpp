#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Registry of the parameters of this process that are sharded, even if their wrappers are gone: they cannot
/// be wrapped again. Any thread.
class ShardedParameterRegistry {
 public:
  static void add(const at::Tensor& parameter);
  static void remove(const at::Tensor& parameter);
  static bool contain(const at::Tensor& tensor);
};

}  // namespace lockstep::parallel
