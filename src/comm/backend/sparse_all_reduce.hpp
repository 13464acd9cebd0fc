#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "comm/transport/transport.hpp"

namespace lockstep::comm {

/// A sum of sparse tensors of `size` ranks, in place, by gathering what is not zero: on every rank the values
/// are added in rank order, as c10d's Gloo does. Throws UsageError for another reduction. The result runs on
/// any thread.
std::function<void(Transport&)> sparse_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                                  int size);

}  // namespace lockstep::comm
