#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// Flat buffers that are kept for the next unit: filling memory that was used before takes half the time, and
/// the allocator's heap is not fragmented. For one thread at a time.
class BufferPool {
 public:
  /// An uninitialized one-dimensional tensor.
  at::Tensor take(std::int64_t size, const at::TensorOptions& options) {
    const auto fits = [&](const at::Tensor& buffer) {
      return buffer.numel() == size && buffer.dtype() == options.dtype();
    };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    if (found == free_.end()) return at::empty({size}, options);
    at::Tensor buffer = std::move(*found);
    free_.erase(found);
    return buffer;
  }

  /// Returns a buffer to the pool; `buffer` is then undefined.
  void give_back(at::Tensor& buffer) {
    if (free_.size() == kKept) free_.erase(free_.begin());
    free_.push_back(std::move(buffer));
    buffer.reset();
  }

 private:
  /// One for computation, one being gathered, one whose gradients are being reduced.
  static constexpr std::size_t kKept = 3;
  std::vector<at::Tensor> free_;
};

}  // namespace lockstep::parallel
