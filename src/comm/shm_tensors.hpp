#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shm/collectives.hpp"

namespace lockstep::comm {

/// Places in the memory of tensors, which lives as long as this does.
template <class Place>
struct Held {
  std::vector<at::Tensor> tensors;
  std::vector<Place> places;
};

shm::Dtype dtype_of(at::ScalarType type);

/// How shared memory sees a tensor. Throws UsageError unless it is dense memory of the CPU in one piece.
shm::Elements elements_of(const char* operation, const at::Tensor& tensor);

/// The only tensor of a list, as c10d passes them. Throws UsageError.
const at::Tensor& single(const char* operation, const std::vector<at::Tensor>& tensors);

/// The memory of tensors that all look like `elements`. Throws UsageError naming the first that does not.
Held<void*> memory_of(const char* operation, const std::vector<at::Tensor>& tensors, shm::Elements elements);

/// `count` pieces of equal length that lie one after the other in a tensor, which has to outlive them.
std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count);

/// The pieces that `splits` (or equal parts, when it is empty) cut the first dimension into.
/// For all_to_all. Throws UsageError where they do not add up to it.
Held<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int count);

/// The memory of tensors of any sizes, for all_to_all. Throws UsageError.
Held<shm::Part> parts_of(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
