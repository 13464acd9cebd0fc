#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shm/collectives.hpp"

namespace lockstep::comm {

shm::Dtype dtype_of(at::ScalarType type);

/// How shared memory sees a tensor. Throws UsageError unless it is dense memory of the CPU in one piece.
shm::Elements elements_of(const char* operation, const at::Tensor& tensor);

/// The only tensor of a list, as c10d passes them. Throws UsageError.
const at::Tensor& single(const char* operation, const std::vector<at::Tensor>& tensors);

/// The memory of tensors that all look like `elements`. Throws UsageError naming the first that does not.
std::vector<void*> memory_of(const char* operation, const std::vector<at::Tensor>& tensors,
                             shm::Elements elements);

/// `count` pieces of equal length that lie one after the other in a tensor.
std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count);

/// The pieces that `splits` (or equal parts, when it is empty) cut the first dimension into.
std::vector<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int count);

}  // namespace lockstep::comm
