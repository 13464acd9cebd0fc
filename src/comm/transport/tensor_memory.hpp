#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "shm/collectives.hpp"

namespace lockstep::comm {

/// Places in the memory of tensors, which lives as long as this does.
template <class Place>
struct Held {
  std::vector<at::Tensor> tensors;
  std::vector<Place> places;
};

/// `bytes` for what is moved and never reduced.
shm::Dtype dtype_of(at::ScalarType type);
/// Byte for `bytes` and for booleans.
at::ScalarType scalar_type_of(shm::Dtype dtype);
/// Throws UsageError for a reduction that only NCCL knows.
shm::Reduction reduction_of(const c10d::ReduceOp& op);

/// How a transport sees a tensor. Throws UsageError unless it is dense memory of the CPU in one piece.
shm::Elements elements_of(const char* operation, const at::Tensor& tensor);

/// Throws UsageError where a tensor has gaps or overlaps: the backends read and write memory from the first
/// element on, as many elements as it has.
void check_in_one_piece(const char* operation, const at::Tensor& tensor);

/// The only tensor of a list, as c10d passes them. Throws UsageError.
const at::Tensor& single(const char* operation, const std::vector<at::Tensor>& tensors);

/// The memory of tensors that all look like `elements`. Throws UsageError naming the first that does not.
Held<void*> memory_of(const char* operation, const std::vector<at::Tensor>& tensors, shm::Elements elements);

/// `count` pieces of equal length that lie one after the other in a tensor, which has to outlive them.
std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count);

/// How much of the first dimension each rank has of an all_to_all: `splits`, or equal parts when it is empty.
/// Throws UsageError where they do not add up to it.
std::vector<std::int64_t> rows_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                  int ranks);

/// The pieces that rows_of() cuts a tensor into.
Held<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows);

/// The memory of tensors of any sizes, for all_to_all. Throws UsageError.
Held<shm::Part> parts_of(const std::vector<at::Tensor>& tensors);

/// Throws UsageError unless `whole` is `ranks` times `piece`. `role`: "output"; `piece_role`: "input".
void check_multiple(const char* operation, const char* role, const at::Tensor& whole, const char* piece_role,
                    shm::Elements piece, int ranks);

/// Throws UsageError unless there is one tensor for each rank. `role`: "output".
void check_count(const char* operation, const char* role, const std::vector<at::Tensor>& tensors, int ranks);

/// Throws UsageError where the lists of an all_to_all have not one tensor for each rank, or several dtypes.
void check_lists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int ranks);

/// The same tensors, or copies of those that are not contiguous.
std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
