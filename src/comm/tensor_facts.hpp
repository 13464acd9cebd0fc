#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "operation_facts.hpp"

namespace lockstep::comm {

/// "Float", as c10 prints it, for as long as the program lives.
const char* dtype_name(at::ScalarType dtype) noexcept;

const char* reduce_name(const c10d::ReduceOp& op) noexcept;

/// The facts of an operation on tensors of which the first one stands for all.
OperationFacts facts_of(const char* name, const std::vector<at::Tensor>& tensors);
OperationFacts facts_of(const char* name, const at::Tensor& tensor);

}  // namespace lockstep::comm
