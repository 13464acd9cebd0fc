#include "parallel/orthogonalize.hpp"

#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>

namespace lockstep::parallel {
namespace {

void normalize(const at::Tensor& column, double epsilon) {
  const at::Tensor norm = at::linalg_vector_norm(column, 2, {1}, /*keepdim=*/true);
  column.div_(epsilon == 0 ? norm : norm.add(epsilon));
}

void gram_schmidt(const at::Tensor& matrices, double epsilon) {
  const std::int64_t columns = matrices.size(2);
  for (std::int64_t i = 0; i < columns; ++i) {
    const at::Tensor column = matrices.narrow(2, i, 1);
    normalize(column, epsilon);
    if (i + 1 == columns) return;
    const at::Tensor rest = matrices.narrow(2, i + 1, columns - i - 1);
    rest.sub_(column.mul(rest).sum({1}, /*keepdim=*/true).mul(column));
  }
}

}  // namespace

void orthogonalize(const at::Tensor& matrices, double epsilon) {
  if (matrices.size(2) <= 2 || c10::isReducedFloatingType(matrices.scalar_type())) {
    gram_schmidt(matrices, epsilon);
  } else {
    matrices.copy_(std::get<0>(at::linalg_qr(matrices)));
  }
}

}  // namespace lockstep::parallel
