#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "lockstep/parallel/power_sgd.hpp"
#include "orthogonalize.hpp"

namespace lockstep {
namespace {

/// Without an epsilon, as the Python hook.
void orthogonalize(const at::Tensor& matrix) { parallel::orthogonalize(matrix.unsqueeze(0), 0); }

/// A copy in a square with zeros behind it.
at::Tensor square_of(const at::Tensor& buffer) {
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(buffer.numel()))));
  at::Tensor square = at::zeros({side, side}, buffer.options());
  square.view(-1).narrow(0, 0, buffer.numel()).copy_(buffer);
  return square;
}

at::Tensor random_matrix(std::uint32_t seed, at::IntArrayRef sizes, const at::Tensor& like) {
  const auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::TensorOptions(at::kCPU).dtype(like.scalar_type())).to(like.device());
}

}  // namespace

FinishBucket BatchedPowerSgdHook::compress(const GradientBucket& bucket, const ProcessGroup& group) {
  at::Tensor square = square_of(bucket.buffer);
  const std::int64_t side = square.size(0), columns = options_.matrix_approximation_rank;
  statistics_.before += bucket.buffer.numel();
  statistics_.after += 2 * side * columns;
  add_error(bucket.index, square);
  at::Tensor &p = ps_[bucket.index], &q = qs_[bucket.index];
  if (!options_.warm_start || !p.defined()) {
    p = at::empty({side, columns}, square.options());
    q = random_matrix(next_seed(), {side, columns}, square);
  }
  orthogonalize(q);
  at::matmul_out(p, square, q);
  return [=, this, index = bucket.index, buffer = bucket.buffer, sent = group.all_reduce_async(p)]() mutable {
    sent.wait();
    orthogonalize(p);
    at::matmul_out(q, square.t(), p);
    group.all_reduce(q);
    q.div_(group.size());
    at::matmul_out(square, p, q.t());
    keep_error(index, square);
    return buffer.copy_(square.view(-1).narrow(0, 0, buffer.numel()));
  };
}

}  // namespace lockstep
