#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::kernels {

/// Bytes that a thread of a kernel reads or writes at once, at a multiple of so many.
constexpr std::int64_t kAligned = 16;

/// Whether such accesses may begin at the tensor's first element.
inline bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAligned == 0;
}

}  // namespace lockstep::kernels
