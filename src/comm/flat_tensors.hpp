#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::comm {

/// Several tensors laid one after the other, and how many elements each has.
struct FlatTensors {
  at::Tensor buffer;
  std::vector<std::int64_t> sizes;
};

/// A copy of tensors of one dtype, of any shapes and strides.
FlatTensors flattened(const std::vector<at::Tensor>& tensors);

/// Room for as much as these tensors hold.
FlatTensors flat_space_for(const std::vector<at::Tensor>& tensors);

/// What lies in `flat` goes into the tensors that it was made for.
void copy_out(const FlatTensors& flat, const std::vector<at::Tensor>& tensors);

/// Throws UsageError unless there is one tensor for each rank. `role`: "output".
void check_count(const char* operation, const char* role, const std::vector<at::Tensor>& tensors, int ranks);

/// Throws UsageError where the lists of an all_to_all have not one tensor for each rank, or several dtypes.
void check_lists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int ranks);

}  // namespace lockstep::comm
