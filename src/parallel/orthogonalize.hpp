#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Makes the columns of each matrix in `matrices` [count, rows, columns] orthonormal, in place, with the
/// operations of torch.distributed's PowerSGD: Gram-Schmidt for up to two columns and narrow types, else QR.
void orthogonalize(const at::Tensor& matrices, double epsilon);

}  // namespace lockstep::parallel
