#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace lockstep::comm {

/// A tensor in the order of its elements, which is all that ranks share: the strides of a dense tensor may
/// differ between them.
struct InOrder {
  /// The tensor itself if it is contiguous, otherwise a copy.
  at::Tensor tensor;
  /// Copies the result back; null if there is none.
  std::function<void()> write_back;

  explicit InOrder(const at::Tensor& given) : tensor(given) {
    if (given.layout() != at::kStrided || given.is_contiguous()) return;
    tensor = given.detach().contiguous();
    write_back = [result = tensor, given = given.detach()] { given.copy_(result); };
  }

  /// `first`, then the copy back.
  std::function<void()> after(std::function<void()> first) const {
    if (!write_back) return first;
    return [first = std::move(first), write_back = write_back] {
      if (first) first();
      write_back();
    };
  }
};

}  // namespace lockstep::comm
