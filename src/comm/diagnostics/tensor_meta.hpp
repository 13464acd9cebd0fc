#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "comm/diagnostics/op_meta.hpp"

namespace lockstep::comm {

/// "Float", as c10 prints it, for as long as the program lives.
const char* dtype_name(at::ScalarType dtype) noexcept;

const char* reduce_name(const c10d::ReduceOp& op) noexcept;

/// The meta of an operation on tensors of which the first one stands for all.
OpMeta meta_of(const char* name, const std::vector<at::Tensor>& tensors);
OpMeta meta_of(const char* name, const at::Tensor& tensor);

}  // namespace lockstep::comm
