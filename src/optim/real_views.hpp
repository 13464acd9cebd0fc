#pragma once

#include <ATen/ops/view_as_real.h>

#include <vector>

namespace lockstep::optim {

/// Complex tensors as pairs of real numbers, which the kernels take, as torch.optim does; others unchanged.
inline std::vector<at::Tensor> real_views(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors)
    if (tensor.is_complex()) tensor = at::view_as_real(tensor.resolve_conj());
  return tensors;
}

}  // namespace lockstep::optim
