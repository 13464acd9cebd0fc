#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Makes the columns of each matrix orthonormal, in place: [matrices, rows, columns]. One or two columns, and
/// reduced dtypes, by Gram and Schmidt's method, with `epsilon` added to each length; others by a QR
/// decomposition, which needs no `epsilon`: it gives orthonormal columns for vanishing ones, too. So does
/// PyTorch's powerSGD_hook, value for value.
void orthogonalize(const at::Tensor& matrices, double epsilon);

}  // namespace lockstep::parallel
