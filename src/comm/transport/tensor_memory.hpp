#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "shm/collective.hpp"

namespace lockstep::comm {

/// `bytes` for types that are copied but never reduced. As in PyTorch, a complex number is two real ones.
shm::Dtype dtype_of(at::ScalarType type);
/// Byte for `bytes` and for booleans.
at::ScalarType scalar_type_of(shm::Dtype dtype);
/// Throws UsageError for a reduction that only NCCL supports.
shm::Reduction reduction_of(const c10d::ReduceOp& op);
/// Also throws UsageError for a reduction that the tensor's dtype does not have. Of complex numbers, these
/// are sum and avg, as in PyTorch.
shm::Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor);

/// A tensor's elements for a transport. Throws UsageError unless it is a dense CPU tensor without gaps.
shm::Elements elements_of(const char* operation, const at::Tensor& tensor);

/// Throws UsageError for a sparse tensor.
void check_strided(const char* operation, const at::Tensor& tensor);

/// Throws UsageError if a tensor is sparse, or has gaps or overlaps: the backends read and write contiguous
/// memory from the first element on.
void check_in_one_piece(const char* operation, const at::Tensor& tensor);

/// The only tensor of a list, as c10d passes them. Throws UsageError.
const at::Tensor& single(const char* operation, const std::vector<at::Tensor>& tensors);

// Pointers into the memory of tensors, which must outlive them.

/// The memory of tensors that match `elements`. Throws UsageError describing the first that does not.
std::vector<void*> memory_of(const char* operation, const std::vector<at::Tensor>& tensors,
                             shm::Elements elements);

/// `count` consecutive pieces of equal length of a tensor.
std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count);

/// The size of each rank's part of dimension 0 in an all_to_all: `splits`, or equal parts if it is empty.
/// Throws UsageError if they do not add up.
std::vector<std::int64_t> rows_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                  int ranks);

/// A tensor's parts according to rows_of().
std::vector<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows);

/// The memory of tensors of any sizes, for all_to_all. Throws UsageError.
std::vector<shm::Part> parts_of(const std::vector<at::Tensor>& tensors);

/// Throws UsageError unless `whole` is `ranks` times `piece`. `role`: "output"; `piece_role`: "input".
void check_multiple(const char* operation, const char* role, const at::Tensor& whole, const char* piece_role,
                    shm::Elements piece, int ranks);

/// Throws UsageError unless there is one tensor per rank. `role`: "output".
void check_count(const char* operation, const char* role, const std::vector<at::Tensor>& tensors, int ranks);

/// Throws UsageError unless the lists of an all_to_all have one tensor per rank and one dtype.
void check_lists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int ranks);

/// The same tensors, or copies of those that are not contiguous.
std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
